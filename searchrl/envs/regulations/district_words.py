"""Word lists of the shared handbook: further hops, comparisons, counts, amendments, other dates.

Owns the form of `searchrl/assets/regulations/district.json`. Slots beside those of `wordings.py`:
`{h}` the school's name, `{o}` another school of the district, `{t}` a title or a limit, `{l}` a list
of things, `{a}` and `{b}` two things. `district.py` composes articles, `hard_questions.py` composes
questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from pydantic import with_config

from searchrl.envs.regulations.names import ValueKind, telling_words
from searchrl.envs.regulations.wordings import Shelf, Texts, Wordings, load_shelves
from searchrl.envs.word_lists import ASSETS, EXACT, load_word_list


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class Relation:
    """Who has to do with an entity: the caretaker of a building, the treasurer of a fund.

    `descriptions` stand for this person in a question that does not name them.
    """

    key: str
    entity_kind: ValueKind
    attribute: str
    titles: Texts
    facts: Wordings
    questions: Wordings
    indirect: Wordings
    remarks: Texts
    descriptions: Wordings | None = None

    def gist(self, entity: str) -> str:
        """What an article and a question about it are about; ends with a telling word."""
        return " ".join([self.attribute, "of", *telling_words(entity)])


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class Comparison:
    """Which of two things has the least, or the greatest, value on a shelf."""

    shelf: str
    is_least: bool
    questions: Wordings


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class Count:
    """How many of some things have a value below, or above, a limit."""

    shelf: str
    is_below: bool
    questions: Wordings


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class Event:
    """A day that other dates are counted from; `topic` is the key of the rule that states it."""

    topic: str
    name: str
    titles: Texts


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class RelativeDates:
    """Dates given as a number of days before or after an event."""

    shelf: str
    facts: Wordings
    events: tuple[Event, ...]


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class DistrictWords:
    """The content of `district.json`.

    An opening that ends with a comma goes on with the article's first rule. Slots of `amendments`:
    `{main}` the rule. Frames hold a question, `{q}` within a sentence or `{Q}`.
    """

    openings: Wordings
    general_remarks: Texts
    other_remarks: Texts
    amendments: Wordings
    amendment_titles: Texts
    school_frames: Wordings
    date_frames: Wordings
    room_descriptions: Wordings
    relations: tuple[Relation, ...]
    comparisons: tuple[Comparison, ...]
    counts: tuple[Count, ...]
    relative_dates: RelativeDates


@cache
def load_district_words() -> DistrictWords:
    """The word lists of the shared handbook, read once."""
    return load_word_list(DistrictWords, ASSETS / "regulations/district.json")


def relation_of(entity_kind: ValueKind) -> Relation:
    """The relation of such entities."""
    relations = load_district_words().relations
    return next(one for one in relations if one.entity_kind is entity_kind)


def shelf_named(key: str) -> Shelf:
    """The shelf with this key."""
    return next(shelf for shelf in load_shelves() if shelf.key == key)
