"""Word lists of rules and questions, from `searchrl/assets/regulations`.

Slots: `{v}` a value, `{s}` a subject or a thing, `{p}` the entity of a chain, and the synonyms of
`phrases.json`, such as `{pupils}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from random import Random
from typing import Annotated, NamedTuple

from pydantic import Field
from pydantic.dataclasses import dataclass

from searchrl.envs.regulations.world.names import ValueKind, telling_words
from searchrl.envs.word_lists import ASSETS, EXACT, load_word_list

_FOLDER = ASSETS / "regulations"
_SYNONYM = re.compile(r"\{([a-z]{2,})\}")


class Wording(NamedTuple):
    """A text with slots; `is_seen`: training may use it."""

    text: str
    is_seen: bool


@dataclass(frozen=True, slots=True, config=EXACT)
class Wordings:
    """Texts that say the same: `both` in all splits, `test` in the test split only.

    The words of `test` occur in `both` lists, in other texts.
    """

    both: Annotated[tuple[str, ...], Field(min_length=1)]
    test: tuple[str, ...] = ()

    def of(self, has_unseen: bool) -> list[Wording]:
        """The texts to choose from, with those of the test split if `has_unseen`."""
        seen = [Wording(text, True) for text in self.both]
        return seen + [Wording(text, False) for text in self.test if has_unseen]

    def __iter__(self) -> Iterator[str]:
        return iter((*self.both, *self.test))


Texts = Annotated[tuple[str, ...], Field(min_length=2)]


@dataclass(frozen=True, slots=True, config=EXACT)
class Topic:
    """A rule with one value.

    `key` is English, of hyphenated words: the expert's thoughts name the rule by it. Topics of one
    `area` may stand in one article.
    """

    key: str
    kind: ValueKind
    area: str
    titles: Texts
    facts: Wordings
    questions: Wordings
    indirect: Wordings
    remarks: Texts
    unit: str = ""


@dataclass(frozen=True, slots=True, config=EXACT)
class Subject:
    """Something a chain starts from, with the names it goes by."""

    key: str
    names: Annotated[tuple[str, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, config=EXACT)
class Family:
    """A kind of chain: a subject's article names an entity, another article is about it.

    `descriptions` stand for the entity in a question that does not name it.
    """

    key: str
    bridge_kind: ValueKind
    value_kind: ValueKind
    link_noun: str
    attribute: str
    subjects: tuple[Subject, ...]
    link_titles: Texts
    links: Wordings
    entity_titles: Texts
    entities: Wordings
    subject_remarks: Texts
    entity_remarks: Texts
    link_questions: Wordings
    link_indirect: Wordings
    entity_questions: Wordings
    entity_indirect: Wordings
    descriptions: Wordings
    unit: str = ""

    def link_gist(self, subject: Subject) -> str:
        """The matter of a link article and of a question about it, by any name of the subject."""
        return f"{self.link_noun} of {subject.key}"


@dataclass(frozen=True, slots=True, config=EXACT)
class Shelf:
    """A kind of rule about many things, each with one name: what it costs, where it is kept."""

    key: str
    kind: ValueKind
    noun: str
    things: Annotated[tuple[str, ...], Field(min_length=8)]
    titles: Texts
    facts: Wordings
    questions: Wordings
    indirect: Wordings
    remarks: Texts
    unit: str = ""

    def about(self, thing: str) -> str:
        """The key of a thing's rule."""
        return f"{self.key}:{thing}"

    def gist(self, thing: str) -> str:
        """The matter of an article and of a question about the thing; its name stands last."""
        words = thing.split()
        # The invented word of a name tells more than the common one behind it.
        names = [word for word in words if word[0].isupper()]
        common = [word for word in words if not word[0].isupper()]
        return " ".join([self.noun, "of", *common, *names])


@dataclass(frozen=True, slots=True, config=EXACT)
class Condition:
    """When or for whom an exception holds; `texts` can follow a question or begin a sentence."""

    key: str
    is_time: bool
    texts: Annotated[tuple[str, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, config=EXACT)
class Phrases:
    """Phrases of all rules; `asides` are sentences that may stand beside any of them, and
    `other_values` such sentences with a value of each kind, which answers nothing.

    Slots of `exceptions` and `past`: `{main}` the rule, `{Main}` the same as a sentence's start,
    `{c}` and `{C}` the condition, `{w}` the other value, `{alt}` the rule again in other words,
    with the other value, `{y}` a year. `amendments` say that an earlier `{main}` no longer holds.
    `direct` frames hold a question `{q}` or `{Q}`; `indirect` frames hold `{i}`, a clause that
    asks.
    """

    synonyms: dict[str, Texts]
    asides: Texts
    other_values: dict[ValueKind, Texts]
    conditions: tuple[Condition, ...]
    exceptions: Wordings
    past: Wordings
    amendments: Wordings
    direct: Wordings
    indirect: Wordings

    def fill(self, text: str, rng: Random) -> str:
        """The text with each synonym slot replaced by one of its words."""
        return _SYNONYM.sub(lambda slot: rng.choice(self.synonyms[slot.group(1)]), text)


@dataclass(frozen=True, slots=True, config=EXACT)
class Relation:
    """A person who has to do with an entity: the caretaker of a building, the treasurer of a fund.

    `descriptions` stand for this person in a question that does not name them.
    """

    key: str
    entity_kind: ValueKind
    attribute: str
    titles: Texts
    facts: Wordings
    remarks: Texts
    descriptions: Wordings


def entity_gist(attribute: str, entity: str) -> str:
    """The matter of an entity's article and of a question about it.

    Ends with a telling word, `limit of Norden`, not `of Norden Fund`: the last tokens tell gists
    apart.
    """
    return " ".join([attribute, "of", *telling_words(entity)])


@cache
def load_topics() -> tuple[Topic, ...]:
    """All topics, in the order of the files."""
    daily, office = _FOLDER / "daily.json", _FOLDER / "office.json"
    return load_word_list(tuple[Topic, ...], daily) + load_word_list(tuple[Topic, ...], office)


@cache
def load_families() -> tuple[Family, ...]:
    """All kinds of chain, in the order of the file."""
    return load_word_list(tuple[Family, ...], _FOLDER / "chains.json")


@cache
def load_shelves() -> tuple[Shelf, ...]:
    """All kinds of rule about things, in the order of the file."""
    return load_word_list(tuple[Shelf, ...], _FOLDER / "things.json")


@cache
def load_phrases() -> Phrases:
    """The phrases of all rules."""
    return load_word_list(Phrases, _FOLDER / "phrases.json")


@cache
def load_relations() -> Mapping[ValueKind, Relation]:
    """The relation of the entities of each kind that have one."""
    relations = load_word_list(tuple[Relation, ...], _FOLDER / "relations.json")
    return {one.entity_kind: one for one in relations}
