"""Procedurally generated schools: the rules, chains and things that each regulates.

A school is a pure function of (world_seed, split, number, difficulty).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from random import Random
from typing import NamedTuple

from searchrl.core.episode import Passage
from searchrl.envs.regulations.world.names import (
    Value,
    ValueKind,
    draw_distinct,
    invent_name,
    school_names,
)
from searchrl.envs.regulations.world.prose import (
    MAX_WORDS,
    Article,
    Composer,
    Rule,
    Statement,
    Status,
)
from searchrl.envs.regulations.world.searching import NUM_SHOWN, Finder, make_finder
from searchrl.envs.regulations.world.wordings import (
    Condition,
    Family,
    Relation,
    Shelf,
    Subject,
    Topic,
    Wordings,
    entity_gist,
    load_families,
    load_phrases,
    load_relations,
    load_shelves,
    load_topics,
)
from searchrl.envs.splits import TRAIN

NUM_SCHOOLS: Mapping[str, int] = {"test": 250, "train": 4000, "validation": 250}
"""Schools per split, in the order in which the splits take their names from `school_names`.

No place name is used twice in a world, so no two splits share one."""

_FIRST_NAME = dict(zip(NUM_SCHOOLS, accumulate(NUM_SCHOOLS.values(), initial=0), strict=False))

_SUBJECTS_PER_FAMILY = {"club": (4, 5), "venue": (4, 4), "form": (4, 4), "fund": (4, 4)}


class Difficulty(StrEnum):
    """The level of articles and of the questions about them."""

    EASY = "easy"
    """Two wordings per rule, one sentence per article, nothing beside the rule."""
    NORMAL = "normal"
    """All wordings; articles of 12 to 30 words, with exceptions, earlier values and remarks;
    articles that talk about a matter without stating its rule; names that no list holds."""
    HARD = "hard"
    """More of all that, chains of three articles, and rules that another article has replaced."""


class Dials(NamedTuple):
    """The shares and sizes of a level. Shares are of rules, unless it says otherwise.

    `remarks_present` and `remarks_absent` count articles that state no rule, on topics that the
    handbook regulates and on others; `crowded` counts the chains of each kind that have such
    articles about their entity; `trap` is the share of questions that are worded so that they
    fit another article better; `max_words` are those of an article (0: one sentence).
    """

    exception: float = 0.0
    past: float = 0.0
    replaced: float = 0.0
    joined: float = 0.0
    invented: float = 0.0
    passing: float = 0.0
    trap: float = 0.0
    remarks_present: int = 0
    remarks_absent: int = 0
    crowded: int = 0
    num_hops: int = 2
    max_words: int = MAX_WORDS
    num_wordings: int | None = None


LEVELS: Mapping[Difficulty, Dials] = {
    Difficulty.EASY: Dials(max_words=0, num_wordings=2),
    Difficulty.NORMAL: Dials(
        exception=0.4,
        past=0.3,
        joined=0.2,
        invented=0.4,
        passing=0.6,
        trap=0.85,
        remarks_present=5,
        remarks_absent=7,
        crowded=1,
    ),
    Difficulty.HARD: Dials(
        exception=0.4,
        past=0.2,
        replaced=0.2,
        joined=0.2,
        invented=0.6,
        passing=0.6,
        trap=1.0,
        remarks_present=5,
        remarks_absent=12,
        num_hops=3,
    ),
}
_NUM_TOPICS = 26
_THINGS_PER_SHELF = (2, 3)


class Link(NamedTuple):
    """A chain: the subject's article names the entity, another article is about the entity.

    With a `relation`, a third one names a person who has to do with the entity, and a fourth says
    where this person can be found. `is_crowded`: the entity's name finds only articles that state
    nothing about it.
    """

    family: Family
    subject: Subject
    entity: str
    relation: Relation | None = None
    person: str = ""
    is_crowded: bool = False

    @property
    def named(self) -> str:
        """The entity as a sentence names it: `the Harker Fund`."""
        return f"the {self.entity}" if self.family.bridge_kind is ValueKind.FUND else self.entity

    @property
    def abouts(self) -> tuple[str, str]:
        """The keys of its two rules."""
        about = f"{self.family.key}:{self.subject.key}"
        return about, f"{about}:{self.family.attribute}"

    @property
    def further(self) -> tuple[str, str]:
        """The keys of the rules behind its relation: who it is, and where to be found."""
        assert self.relation is not None
        about = f"{self.abouts[0]}:{self.relation.key}"
        return about, f"{about}:room"


@dataclass(frozen=True)
class School:
    """A school's handbook, with the matters that it regulates, and others that it does not.

    `exceptions` maps a rule's key to the condition of its exception. `has_unseen`: wordings that
    training never shows may be used. `trap_share` is that of `Dials`.
    """

    key: str
    articles: tuple[Article, ...]
    exceptions: Mapping[str, Condition]
    has_unseen: bool
    name: str
    topics: tuple[Topic, ...]
    links: tuple[Link, ...]
    things: tuple[tuple[Shelf, str], ...]
    absent_topics: tuple[Topic, ...]
    absent_subjects: tuple[tuple[Family, Subject], ...]
    absent_things: tuple[tuple[Shelf, str], ...]
    trap_share: float

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """The articles as they are searched."""
        return tuple(article.passage for article in self.articles)

    @cached_property
    def stated(self) -> Mapping[str, tuple[Article, Statement]]:
        """By its key, the article and the statement of every rule and exception as it holds now."""
        return {
            one.about: (article, one)
            for article in self.articles
            for one in article.statements
            if one.status is not Status.REPLACED
        }

    @property
    def finder(self) -> Finder:
        """A word search in its articles."""
        return make_finder(self.passages)


def make_school(world_seed: int, split: str, number: int, difficulty: Difficulty) -> School:
    """Build school `number` of `split`. Pure; the most recent ones are kept, some 0.1 MB each.

    Those of an evaluation come again; those of a training step do not. A group begins its episodes
    at once, in threads: the first one builds, the others wait.
    """
    make = _make_training if split == TRAIN else _make_held_out
    with _BUILDING:
        return make(world_seed, split, number, difficulty)


def _make(world_seed: int, split: str, number: int, difficulty: Difficulty) -> School:
    name = school_names(world_seed)[_FIRST_NAME[split] + number]
    key = f"regulations/{world_seed}/{split}/{number}/{difficulty}"
    return _Founder(key, split, difficulty).found(name)


_BUILDING = threading.Lock()
_make_training = lru_cache(maxsize=32)(_make)
_make_held_out = lru_cache(maxsize=512)(_make)


def room_family() -> Family:
    """The chain whose entities are persons, of whom a room is stated."""
    return next(one for one in load_families() if one.bridge_kind is ValueKind.PERSON)


class _Founder:
    """Draws what one school regulates, and has it written down."""

    def __init__(self, key: str, split: str, difficulty: Difficulty) -> None:
        self._key = key
        self._rng = Random(key)
        # No two names share a word, so that names are unambiguous.
        self._draw = partial(draw_distinct, rng=self._rng, used=set())
        self._dials = LEVELS[difficulty]
        self._has_unseen = split == "test" and difficulty is not Difficulty.EASY
        self._composer = Composer(
            load_phrases(), self._rng, self._has_unseen, self._dials.num_wordings
        )
        self._articles: list[Article] = []
        self._exceptions: dict[str, Condition] = {}

    def found(self, name: str) -> School:
        rng = self._rng
        topics = rng.sample(load_topics(), len(load_topics()))
        present, absent = topics[:_NUM_TOPICS], topics[_NUM_TOPICS:]
        links, absent_subjects = self._add_chains()
        things, absent_things = self._add_things()
        self._add_topics(present)
        for group, count in (
            (present, self._dials.remarks_present),
            (absent, self._dials.remarks_absent),
        ):
            for topic in rng.sample(group, count):
                article = self._composer.remark_article(topic.titles, topic.remarks, {})
                self._articles.append(article)
        return School(
            key=self._key,
            name=name,
            articles=self._numbered(),
            topics=tuple(present),
            links=tuple(links),
            things=tuple(things),
            absent_topics=tuple(absent),
            absent_subjects=tuple(absent_subjects),
            absent_things=tuple(absent_things),
            exceptions=self._exceptions,
            has_unseen=self._has_unseen,
            trap_share=self._dials.trap,
        )

    def _add_topics(self, topics: Sequence[Topic]) -> None:
        """One article for each, or one for two of the same area."""
        waiting = list(topics)
        while waiting:
            first = waiting.pop(0)
            near = [topic for topic in waiting if topic.area == first.area]
            # With an exception beside them, two rules would be more than `MAX_WORDS`.
            is_joined = bool(near) and self._rng.random() < self._dials.joined
            topic_rules = [self._topic_rule(first, is_plain=is_joined)]
            if is_joined:
                waiting.remove(near[0])
                topic_rules.append(self._topic_rule(near[0], is_plain=True))
            self._write(first.titles, topic_rules, first.remarks)

    def _topic_rule(self, topic: Topic, is_plain: bool = False) -> Rule:
        value = Value(topic.kind, self._draw(topic.kind), topic.unit)
        return self._rule(topic.key, topic.key, value, topic.facts, {}, is_plain)

    def _add_chains(self) -> tuple[list[Link], list[tuple[Family, Subject]]]:
        rng, links, absent = self._rng, [], []
        for family in load_families():
            subjects = rng.sample(family.subjects, len(family.subjects))
            count = rng.randint(*_SUBJECTS_PER_FAMILY[family.key])
            chosen = subjects[:count]
            absent += [(family, subject) for subject in subjects[count:]]
            if family.key == "club" and rng.random() < self._dials.invented:
                name = invent_name(rng)
                chosen.append(Subject(name, (f"{name} group",)))
            for number, subject in enumerate(chosen):
                links.append(self._add_chain(family, subject, number))
        return links, absent

    def _add_chain(self, family: Family, subject: Subject, number: int) -> Link:
        rng, is_crowded = self._rng, number < self._dials.crowded
        entity = Value(family.bridge_kind, self._draw_entity(family.bridge_kind))
        value = Value(family.value_kind, self._draw(family.value_kind), family.unit)
        link = Link(family, subject, entity.text.removeprefix("the "), is_crowded=is_crowded)
        first, second = link.abouts
        called = subject.names
        if self._dials.crowded and number % 2:
            # A name that the rule's own does not find, so that a question can be in need of it.
            called = tuple(name for name in called if subject.key not in name) or called
        names = {"s": rng.choice(called)}
        rule = self._rule(first, family.link_gist(subject), entity, family.links, names)
        self._write(family.link_titles, [rule], family.subject_remarks)
        gist = entity_gist(family.attribute, link.entity)
        rule = self._rule(second, gist, value, family.entities, {"p": entity.text})
        titles = family.entity_titles
        if is_crowded:
            titles = tuple(t for t in titles if family.attribute in t.casefold() and "{p}" in t)
            for _ in range(NUM_SHOWN):  # as many as a search shows, none of which states a rule
                crowd = self._composer.remark_article(
                    ["{p}"], family.entity_remarks, {"p": entity.text}
                )
                self._articles.append(crowd)
        self._write(titles, [rule], family.entity_remarks)
        relation = load_relations().get(entity.kind)
        if self._dials.num_hops < 3 or relation is None:
            return link
        return self._go_further(link, entity, relation)

    def _go_further(self, link: Link, entity: Value, relation: Relation) -> Link:
        """State who has to do with an entity, and the room of this person."""
        person = Value(ValueKind.PERSON, self._draw_entity(ValueKind.PERSON))
        room = Value(ValueKind.ROOM, self._draw(ValueKind.ROOM))
        link, club = link._replace(relation=relation, person=person.bare), room_family()
        who, where = link.further
        gist, slots = entity_gist(relation.attribute, link.entity), {"p": entity.text}
        rule = self._rule(who, gist, person, relation.facts, slots)
        self._write(relation.titles, [rule], relation.remarks)
        gist, slots = entity_gist(club.attribute, person.bare), {"p": person.text}
        rule = self._rule(where, gist, room, club.entities, slots)
        self._write(club.entity_titles, [rule], club.entity_remarks)
        return link

    def _draw_entity(self, kind: ValueKind) -> str:
        name = self._draw(kind)
        if kind is ValueKind.PERSON and self._rng.random() < self._dials.invented / 2:
            return f"{name.split()[0]} {invent_name(self._rng).split()[0]}"
        return name

    def _add_things(self) -> tuple[list[tuple[Shelf, str]], list[tuple[Shelf, str]]]:
        rng, things, absent = self._rng, [], []
        for shelf in load_shelves():
            drawn = rng.sample(shelf.things, _THINGS_PER_SHELF[1] + 2)
            count = rng.randint(*_THINGS_PER_SHELF)
            absent += [(shelf, self._named(thing)) for thing in drawn[count:]]
            present = [self._named(thing) for thing in drawn[:count]]
            # Another of the same sort: only its name tells that the handbook is silent on it.
            absent += [
                (shelf, f"{invent_name(rng)} {thing}")
                for thing, named in zip(drawn, present, strict=False)
                if named != thing
            ]
            for thing in present:
                value = Value(shelf.kind, self._draw(shelf.kind), shelf.unit)
                about, slots = shelf.about(thing), {"s": thing}
                rule = self._rule(about, shelf.gist(thing), value, shelf.facts, slots)
                self._write(shelf.titles, [rule], shelf.remarks)
                things.append((shelf, thing))
        return things, absent

    def _named(self, thing: str) -> str:
        """The thing, or one with an invented name: `Tavros poster contest`."""
        if self._rng.random() < self._dials.invented:
            return f"{invent_name(self._rng)} {thing}"
        return thing

    def _rule(
        self,
        about: str,
        gist: str,
        value: Value,
        wordings: Wordings,
        slots: dict[str, str],
        is_plain: bool = False,
    ) -> Rule:
        """The rule, with an exception, an earlier value or an article that it replaces."""
        rule, dials = Rule(about, gist, value, wordings, slots), self._dials
        point = self._rng.random()
        other = self._other(value)
        if is_plain or point >= dials.exception + dials.past + dials.replaced:
            has_other = not is_plain and self._rng.random() < dials.passing
            return replace(rule, other=other) if has_other else rule
        if point < dials.past:
            return replace(rule, past=other)
        if point >= dials.exception + dials.past:
            return replace(rule, replaced=other)
        # A date is the same on all days.
        is_date = value.kind is ValueKind.DATE
        conditions = load_phrases().conditions
        condition = self._rng.choice([one for one in conditions if not (one.is_time and is_date)])
        self._exceptions[about] = condition
        return replace(rule, exemption=(condition, other))

    def _other(self, value: Value) -> Value:
        while True:
            other = value._replace(bare=self._draw(value.kind))
            if other != value:
                return other

    def _write(self, titles: Sequence[str], rules: Sequence[Rule], remarks: Sequence[str]) -> None:
        """Write an article of rules, and one for each rule that it replaces."""
        write = partial(
            self._composer.article, titles, remarks=remarks, limit=self._dials.max_words
        )
        for rule in rules:
            if rule.replaced is not None:
                old = write([replace(rule, value=rule.replaced, replaced=None)])
                void = tuple(one._replace(status=Status.REPLACED) for one in old.statements)
                self._articles.append(old._replace(statements=void))
        self._articles.append(write(rules))

    def _numbered(self) -> tuple[Article, ...]:
        self._rng.shuffle(self._articles)
        return tuple(
            article._replace(passage=replace(article.passage, id=f"art-{number:02d}"))
            for number, article in enumerate(self._articles, start=1)
        )
