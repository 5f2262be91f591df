"""Procedurally generated schools: the handbook, what each article states, what is missing.

A school is a pure function of (world_seed, split, number, difficulty). Owns which topics and
chains a school regulates, and their values. Wordings are in `wordings.py`, questions are made in
`questions.py`. Called by `env.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import NamedTuple

from searchrl.core.episode import Passage
from searchrl.envs.regulations.names import DistinctValues, ValueKind, school_names
from searchrl.envs.regulations.wordings import (
    ArticleWording,
    Family,
    Subject,
    Topic,
    load_families,
    load_topics,
)

NUM_SCHOOLS: Mapping[str, int] = {"test": 250, "train": 4000, "validation": 250}
"""Schools per split, in the order in which the splits take their names from `school_names`.

No place name is used twice in a world, so no two splits share one."""

_FIRST_NAME = dict(zip(NUM_SCHOOLS, accumulate(NUM_SCHOOLS.values(), initial=0), strict=False))

NUM_ARTICLES = (44, 48)
"""The least and the usual greatest number of articles of a handbook; more if rules are too few."""

_SUBJECTS_PER_FAMILY = {"club": (4, 5), "venue": (2, 3), "form": (2, 3), "fund": (2, 3)}
_WORD = re.compile(r"\w+")


class Difficulty(StrEnum):
    """How much questions and articles differ in words, and how many articles look like answers."""

    EASY = "easy"
    """Two wordings per kind of article, no remarks; a question shares two telling words with its
    article if any of its wordings does."""
    NORMAL = "normal"
    """All wordings; a question shares a telling word with its article; most chains have a
    remark, an article that names the same people and things but answers nothing."""
    HARD = "hard"
    """As normal; every chain has a remark, and silence is also asked about over two hops."""


_MIN_RULES = 12
_REMARKS_PER_CHAIN = {Difficulty.EASY: 0.0, Difficulty.NORMAL: 0.7, Difficulty.HARD: 1.0}


class Article(NamedTuple):
    """A passage and what it states.

    `about` is the rule's key, unique within a school; `gist` says the same in a reader's words,
    for every wording and synonym: two texts on the same matter have the same gist.
    """

    passage: Passage
    about: str
    gist: str
    value: str
    kind: ValueKind


class Link(NamedTuple):
    """One regulated chain of a school."""

    family: Family
    subject: Subject
    entity: str
    link: Article
    entity_article: Article


@dataclass(frozen=True, slots=True)
class School:
    """A school with its handbook.

    `rules` are the topics it regulates, each with its article, `links` its chains; `absent_topics`
    and `absent_subjects` are what the handbook does not mention.
    """

    key: str
    name: str
    passages: tuple[Passage, ...]
    rules: tuple[tuple[Topic, Article], ...]
    links: tuple[Link, ...]
    absent_topics: tuple[Topic, ...]
    absent_subjects: tuple[tuple[Family, Subject], ...]
    num_articles_with: Mapping[str, int]
    gists: Mapping[str, str]
    """What each passage is about, by its id."""


def words_of(text: str) -> frozenset[str]:
    """The words of a text in lower case, to see what a question and an article share."""
    return frozenset(_WORD.findall(text.casefold()))


@lru_cache(maxsize=512)
def make_school(world_seed: int, split: str, number: int, difficulty: Difficulty) -> School:
    """Build school `number` of `split`. Pure; the most recent ones are kept."""
    name = school_names(world_seed)[_FIRST_NAME[split] + number]
    key = f"regulations/{world_seed}/{split}/{number}/{difficulty}"
    rng = Random(key)
    values = DistinctValues(rng)
    drafts = _Drafts(rng, num_wordings=2 if difficulty is Difficulty.EASY else None)
    chains: list[tuple[Family, Subject, str]] = []
    absent_subjects: list[tuple[Family, Subject]] = []
    for family in load_families():
        subjects = rng.sample(family.subjects, len(family.subjects))
        count = rng.randint(*_SUBJECTS_PER_FAMILY[family.key])
        absent_subjects += [(family, subject) for subject in subjects[count:]]
        for subject in subjects[:count]:
            entity, value = values.draw(family.bridge_kind), values.draw(family.value_kind)
            drafts.add_chain(family, subject, entity, value)
            chains.append((family, subject, entity))
    for chain in rng.sample(chains, round(_REMARKS_PER_CHAIN[difficulty] * len(chains))):
        drafts.add_remark(*chain)
    topics = rng.sample(load_topics(), len(load_topics()))
    count = max(rng.randint(*NUM_ARTICLES) - len(drafts), _MIN_RULES)
    for topic in topics[:count]:
        value = values.draw(topic.kind)
        drafts.add(topic.key, topic.gist, topic.articles, value, topic.kind)
    by_about = drafts.numbered()
    articles = by_about.values()
    return School(
        key=key,
        name=name,
        passages=tuple(sorted((a.passage for a in articles), key=lambda passage: passage.id)),
        rules=tuple((topic, by_about[topic.key]) for topic in topics[:count]),
        links=tuple(
            Link(*chain, *(by_about[about] for about in _abouts(*chain[:2]))) for chain in chains
        ),
        absent_topics=tuple(topics[count:]),
        absent_subjects=tuple(absent_subjects),
        num_articles_with=Counter(
            word for a in articles for word in words_of(f"{a.passage.title} {a.passage.text}")
        ),
        gists={a.passage.id: a.gist for a in articles},
    )


def _abouts(family: Family, subject: Subject) -> tuple[str, str]:
    """What the two articles of a chain are about."""
    about = f"{family.key}:{subject.key}"
    return about, f"{about}:{family.value_kind}"


class _Drafts:
    """Articles before they have numbers; `numbered` numbers them in random order."""

    def __init__(self, rng: Random, num_wordings: int | None) -> None:
        self._rng = rng
        self._num_wordings = num_wordings
        self._articles: list[Article] = []

    def add(
        self,
        about: str,
        gist: str,
        wordings: Sequence[ArticleWording],
        value: str,
        kind: ValueKind,
        **slots: str,
    ) -> None:
        wording = self._rng.choice(wordings[: self._num_wordings])
        title, text = wording.fill(v=value, **slots)
        self._articles.append(Article(Passage("", text, title), about, gist, value, kind))

    def add_chain(self, family: Family, subject: Subject, entity: str, value: str) -> None:
        link, at = _abouts(family, subject)
        gist, names = family.link_gist(subject), self._names(subject)
        self.add(link, gist, family.links, entity, family.bridge_kind, **names)
        gist = family.entity_gist(entity)
        self.add(at, gist, family.entities, value, family.value_kind, p=entity)

    def add_remark(self, family: Family, subject: Subject, entity: str) -> None:
        about = f"{family.key}:{subject.key}:remark"
        if self._rng.random() < 0.5:
            gist, names = f"{subject.key} note", self._names(subject)
            self.add(about, gist, family.subject_remarks, "", family.bridge_kind, **names)
        else:
            gist = f"{entity} note"
            self.add(about, gist, family.entity_remarks, "", family.value_kind, p=entity)

    def _names(self, subject: Subject) -> dict[str, str]:
        return {"A": self._rng.choice(subject.names), "a": self._rng.choice(subject.names)}

    def __len__(self) -> int:
        return len(self._articles)

    def numbered(self) -> dict[str, Article]:
        numbers = list(range(1, len(self) + 1))
        self._rng.shuffle(numbers)
        return {
            one.about: one._replace(passage=replace(one.passage, id=f"art-{number:02d}"))
            for number, one in zip(numbers, self._articles, strict=True)
        }
