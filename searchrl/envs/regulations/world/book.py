"""A generated handbook: its articles, and what is known of them.

Owns what the handbook of one school (`school.py`) and that of several (`district.py`) share.
`env.py` and the questions read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from searchrl.core.episode import Passage
from searchrl.envs.regulations.world.names import ValueKind
from searchrl.envs.regulations.world.prose import Article, Statement, statements_by_key
from searchrl.envs.regulations.world.searching import Finder, make_finder
from searchrl.envs.regulations.world.wordings import Condition, load_phrases


@dataclass(frozen=True, slots=True)
class Book:
    """A handbook and what is known of it.

    `stated` holds, by its key, the article and the statement of every rule and exception as it
    holds now: an amended rule's new value. `exceptions` maps a rule's key to the condition of its
    exception. `has_unseen`: wordings that training never shows may be used.
    """

    key: str
    articles: tuple[Article, ...]
    exceptions: Mapping[str, Condition]
    has_unseen: bool
    passages: tuple[Passage, ...] = field(init=False)
    stated: Mapping[str, tuple[Article, Statement]] = field(init=False)

    def __post_init__(self) -> None:
        passages = tuple(article.passage for article in self.articles)
        object.__setattr__(self, "passages", passages)
        object.__setattr__(self, "stated", statements_by_key(self.articles))

    @property
    def finder(self) -> Finder:
        """A word search in its articles."""
        return make_finder(self.passages)


def draw_condition(kind: ValueKind, rng: Random) -> Condition:
    """When or for whom an exception from a value of this kind holds."""
    conditions = load_phrases().conditions
    # A date is the same on all days.
    return rng.choice([one for one in conditions if not (one.is_time and kind is ValueKind.DATE)])
