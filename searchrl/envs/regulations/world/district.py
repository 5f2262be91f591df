"""Procedurally generated districts: one long handbook that several schools share.

A district is a pure function of (world_seed, split, number). Owns what each of its schools
regulates, which rules are amended and which dates are relative. Every article is about one school
and says which. Wordings are in `wordings.py`, articles are written by `prose.py`, tasks by
`hard_questions.py`. Called by `env.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate
from random import Random
from typing import NamedTuple

from searchrl.envs.regulations.world.book import Book, draw_condition
from searchrl.envs.regulations.world.names import (
    DistinctValues,
    Value,
    ValueKind,
    date_from,
    draw_value,
    invent_name,
    school_names,
)
from searchrl.envs.regulations.world.prose import (
    Exemption,
    PageWriter,
    Planned,
    Rule,
    Status,
)
from searchrl.envs.regulations.world.wordings import (
    Condition,
    Event,
    Family,
    Shelf,
    Subject,
    Topic,
    Wordings,
    load_district_words,
    load_families,
    load_shelves,
    load_topics,
    relation_of,
    shelf_named,
)

SCHOOLS_PER_DISTRICT = 4
NUM_DISTRICTS: Mapping[str, int] = {"test": 32, "train": 128, "validation": 32}
"""Districts per split, in the order in which the splits take their names from `school_names`.

Few enough that tasks in any order find most handbooks built."""

_FIRST_DISTRICT = dict(
    zip(NUM_DISTRICTS, accumulate(NUM_DISTRICTS.values(), initial=0), strict=False)
)
_KEPT = 64
"""Districts in memory, 1.2 megabytes each: those of an evaluation of 256 tasks."""

_NUM_TOPICS = 34
_SUBJECTS = {"club": 8, "venue": 6, "form": 5, "fund": 5}
_THINGS_IN_POOL, _THINGS, _NUM_RELATIVE = 32, 18, 8
_EXEMPTION, _PAST, _AMENDED, _RELATED, _INVENTED = 0.3, 0.15, 0.15, 0.75, 0.15
"""Shares: rules with an exception, with a value of the past, with an amendment; entities with a
further hop; invented names."""


class Hop(NamedTuple):
    """One step of a chain: what its article states, and how it is asked for and described.

    The first hop's texts name a subject, `{s}`; the later ones' what the hop before found, `{p}`.
    `attribute` is what to search for beside that name. `is_stated`: the handbook has it.
    """

    about: str
    gist: str
    attribute: str
    kind: ValueKind
    questions: Wordings
    indirect: Wordings
    descriptions: Wordings | None
    is_stated: bool = True


class Trail(NamedTuple):
    """A subject, and the hops that start from it."""

    subject: Subject
    hops: tuple[Hop, ...]


class Thing(NamedTuple):
    """A thing of one school and the shelf that its rule belongs to."""

    about: str
    shelf: Shelf
    name: str


class Relative(NamedTuple):
    """A thing whose date is counted from an event; `event_about` is the event's rule."""

    thing: Thing
    event: Event
    event_about: str
    date: Value


@dataclass(frozen=True, slots=True)
class House:
    """What one school of a district regulates, and what it does not.

    `place` is the first word of its name. Of `trails`, the first hops are stated, of some the last
    one is not; of `absent_trails` none is.
    """

    name: str
    place: str
    topics: tuple[Topic, ...]
    trails: tuple[Trail, ...]
    things: tuple[Thing, ...]
    relatives: tuple[Relative, ...]
    absent_topics: tuple[Topic, ...]
    absent_trails: tuple[Trail, ...]
    absent_things: tuple[Thing, ...]

    def about(self, key: str) -> str:
        """The key of one of its rules, unique within the district."""
        return f"{self.place}/{key}"


@dataclass(frozen=True, slots=True)
class District(Book):
    """The handbook of several schools.

    `unseen` are the keys that are stated in wordings that training never shows.
    """

    houses: tuple[House, ...]
    unseen: frozenset[str]


@lru_cache(maxsize=_KEPT)
def make_district(world_seed: int, split: str, number: int) -> District:
    """Build district `number` of `split`. Pure; the most recent ones are kept."""
    first = (_FIRST_DISTRICT[split] + number) * SCHOOLS_PER_DISTRICT
    names = school_names(world_seed)[first : first + SCHOOLS_PER_DISTRICT]
    key = f"regulations/{world_seed}/{split}/hard/{number}"
    rng, has_unseen = Random(key), split == "test"
    offer, used = _draw_offer(rng), set[str]()
    houses, articles, unseen = [], [], set[str]()
    exceptions: dict[str, Condition] = {}
    for name in names:
        founder = _Founder(name, rng, offer, used)
        houses.append(founder.found())
        others = [other for other in names if other != name]
        idle = [topic.remarks for topic in houses[-1].absent_topics]
        writer = PageWriter(rng, name, others, idle, has_unseen)
        articles += writer.pages(founder.planned)
        unseen |= writer.unseen
        exceptions |= founder.exceptions
    rng.shuffle(articles)
    numbered = (
        one._replace(passage=replace(one.passage, id=f"art-{place:03d}"))
        for place, one in enumerate(articles, start=1)
    )
    return District(
        key=key,
        articles=tuple(numbered),
        exceptions=exceptions,
        has_unseen=has_unseen,
        houses=tuple(houses),
        unseen=frozenset(unseen),
    )


_Offer = Mapping[str, tuple[str, ...]]
"""The things that the schools of one district may regulate, by shelf; each school takes some."""


def _draw_offer(rng: Random) -> _Offer:
    return {
        shelf.key: tuple(
            f"{invent_name(rng).split()[0]} {thing}" if rng.random() < _INVENTED else thing
            for thing in rng.sample(shelf.things, _THINGS_IN_POOL)
        )
        for shelf in load_shelves()
    }


class _Founder:
    """Draws what one school of a district regulates."""

    def __init__(self, name: str, rng: Random, offer: _Offer, used: set[str]) -> None:
        self.name, self.place, self.planned = name, name.split()[0], list[Planned]()
        self.exceptions: dict[str, Condition] = {}
        self._rng = rng
        self._offer = offer
        self._used = used
        self._names = DistinctValues(rng)

    def found(self) -> House:
        events = {one.topic: one for one in load_district_words().relative_dates.events}
        topics = self._rng.sample(load_topics(), len(load_topics()))
        topics.sort(key=lambda topic: topic.key not in events)
        present, absent_topics = topics[:_NUM_TOPICS], topics[_NUM_TOPICS:]
        for topic in present:
            self._add_topic(topic, events.get(topic.key))
        trails, absent_trails = self._add_chains()
        things, absent_things = self._add_things()
        return House(
            name=self.name,
            place=self.place,
            topics=tuple(present),
            trails=tuple(trails),
            things=tuple(things),
            relatives=tuple(self._add_relatives(absent_things)),
            absent_topics=tuple(absent_topics),
            absent_trails=tuple(absent_trails),
            absent_things=tuple(absent_things),
        )

    def _add_topic(self, topic: Topic, event: Event | None) -> None:
        value = Value(topic.kind, draw_value(topic.kind, self._rng), topic.unit)
        self._plan(
            Planned(
                Rule(self._about(topic.key), topic.gist, value, topic.facts, {}),
                event.titles if event else topic.titles,
                topic.remarks,
                topic.area,
                topic.key,
                is_first=event is not None,
            ),
            # Other dates are counted from an event: it is on one day for all.
            0.0 if event else _EXEMPTION,
        )

    def _add_chains(self) -> tuple[list[Trail], list[Trail]]:
        rng, trails, absent = self._rng, list[Trail](), list[Trail]()
        for family in load_families():
            subjects = rng.sample(family.subjects, len(family.subjects))
            count = _SUBJECTS[family.key]
            chosen = subjects[:count]
            if family.key == "club":
                name = invent_name(rng).split()[0]
                chosen[-1] = Subject(name, (f"{name} group",))
            for subject in chosen:
                trails += self._add_chain(family, subject)
            for subject in subjects[count:]:
                first, second = self._hops(family, subject, "")
                first = first._replace(is_stated=False)
                absent += [Trail(subject, (first,)), Trail(subject, (first, second))]
        return trails, absent

    def _add_chain(self, family: Family, subject: Subject) -> list[Trail]:
        """State the subject's entity, what is known of that, and in most chains a third hop."""
        rng = self._rng
        entity = Value(family.bridge_kind, self._draw_name(family.bridge_kind))
        chain = f"{family.key}:{subject.key}"
        link, known = self._hops(family, subject, entity.bare)
        slots = {"s": rng.choice(subject.names)}
        rule = Rule(link.about, link.gist, entity, family.links, slots)
        texts = family.link_titles, family.subject_remarks
        other = entity._replace(bare=self._draw_name(entity.kind))
        former = self._plan(Planned(rule, *texts, f"{family.key}/link", chain), other=other)
        is_club = family.value_kind is ValueKind.ROOM
        draw = self._draw_name if is_club else partial(draw_value, rng=rng)
        value = Value(family.value_kind, draw(family.value_kind), family.unit)
        self._plan_entity(family, known, entity, value, chain)
        if former:
            # What holds for the entity that an amendment replaced stands in the handbook, too.
            old = self._hops(family, subject, former.bare)[1]
            old = old._replace(about=f"{old.about}:former")
            self._plan_entity(family, old, former, self._other(value), chain)
        # A club's room has a key; buildings, forms and funds have someone in charge of them.
        before, source = ((link, known), value) if is_club else ((link,), entity)
        relation = relation_of(source.kind)
        further = Hop(
            f"{before[-1].about}:{relation.key}",
            relation.gist(source.bare),
            relation.attribute,
            ValueKind.PERSON,
            relation.questions,
            relation.indirect,
            relation.descriptions,
            is_stated=rng.random() < _RELATED,
        )
        trails = [Trail(subject, (link, known)), Trail(subject, (*before, further))]
        if further.is_stated:
            person = Value(ValueKind.PERSON, self._draw_name(ValueKind.PERSON))
            slots = {"p": source.text}
            rule = Rule(further.about, further.gist, person, relation.facts, slots)
            self._plan(Planned(rule, relation.titles, relation.remarks, relation.key, chain))
            if not is_club:
                club = next(one for one in load_families() if one.value_kind is ValueKind.ROOM)
                room = self._room_hop(club, further.about, person.bare)
                where = Value(ValueKind.ROOM, draw_value(ValueKind.ROOM, rng))
                self._plan_entity(club, room, person, where, chain)
                trails.append(Trail(subject, (link, further, room)))
        return trails

    def _plan_entity(
        self, family: Family, hop: Hop, entity: Value, value: Value, chain: str
    ) -> None:
        rule = Rule(hop.about, hop.gist, value, family.entities, {"p": entity.text})
        texts = family.entity_titles, family.entity_remarks
        self._plan(Planned(rule, *texts, f"{family.key}/entity", chain))

    def _hops(self, family: Family, subject: Subject, entity: str) -> tuple[Hop, Hop]:
        """The subject's hop, and what is known of its entity."""
        first = Hop(
            self._about(f"{family.key}:{subject.key}"),
            family.link_gist(subject),
            family.link_noun,
            family.bridge_kind,
            family.link_questions,
            family.link_indirect,
            family.descriptions,
        )
        if family.value_kind is ValueKind.ROOM:
            return first, self._room_hop(family, first.about, entity)
        second = Hop(
            f"{first.about}:{family.attribute}",
            family.entity_gist(entity),
            family.attribute,
            family.value_kind,
            family.entity_questions,
            family.entity_indirect,
            None,
        )
        return first, second

    def _room_hop(self, club: Family, about: str, person: str) -> Hop:
        """Where a person can be found."""
        return Hop(
            f"{about}:{club.attribute}",
            club.entity_gist(person),
            club.attribute,
            ValueKind.ROOM,
            club.entity_questions,
            club.entity_indirect,
            load_district_words().room_descriptions,
        )

    def _add_things(self) -> tuple[list[Thing], list[Thing]]:
        things, absent = list[Thing](), list[Thing]()
        for shelf in load_shelves():
            names = self._rng.sample(self._offer[shelf.key], _THINGS_IN_POOL)
            listed = [Thing(self._about(f"{shelf.key}:{one}"), shelf, one) for one in names]
            things += listed[:_THINGS]
            absent += listed[_THINGS:]
        for thing in things:
            shelf = thing.shelf
            value = Value(shelf.kind, draw_value(shelf.kind, self._rng), shelf.unit)
            self._plan(_plan_thing(thing, value, shelf.facts))
        return things, absent

    def _add_relatives(self, absent: list[Thing]) -> Iterable[Relative]:
        """Things whose deadline is counted from an event; takes them out of `absent`."""
        words = load_district_words().relative_dates
        current = (one.rule for one in self.planned if one.status is not Status.REPLACED)
        values = {rule.about: rule.value for rule in current}
        free = [thing for thing in absent if thing.shelf is shelf_named(words.shelf)]
        for thing in free[:_NUM_RELATIVE]:
            absent.remove(thing)
            event = self._rng.choice(words.events)
            event_about = self._about(event.topic)
            days, bare = 0, ""
            while not bare:
                days = self._rng.choice((-1, -1, -1, 1)) * self._rng.randint(3, 24)
                bare = date_from(values[event_about].bare, days)
            text = f"{abs(days)} days {'before' if days < 0 else 'after'} {event.name}"
            planned = _plan_thing(thing, Value(ValueKind.DATE, text), words.facts)
            self.planned.append(planned._replace(chain=event.topic))
            yield Relative(thing, event, event_about, Value(ValueKind.DATE, bare))

    def _about(self, key: str) -> str:
        return f"{self.place}/{key}"

    def _draw_name(self, kind: ValueKind) -> str:
        """A name that no other entity of the district has."""
        while True:
            name = self._names.draw(kind)
            if kind is ValueKind.PERSON and self._rng.random() < _INVENTED:
                name = f"{name.split()[0]} {invent_name(self._rng).split()[0]}"
            if name not in self._used:
                self._used.add(name)
                return name

    def _plan(
        self, planned: Planned, exemption: float = _EXEMPTION, other: Value | None = None
    ) -> Value | None:
        """Have the rule written, with an exception, a value of the past or an amendment.

        Returns the value that an amendment replaced: `other`, or one that is drawn.
        """
        rule, point = planned.rule, self._rng.random()
        bounds = list(accumulate((_AMENDED, _PAST, exemption)))
        if point >= bounds[2]:
            self.planned.append(planned)
            return None
        other = other or self._other(rule.value)
        if point < bounds[0]:
            old = planned._replace(rule=replace(rule, value=other), status=Status.REPLACED)
            self.planned += [old, planned._replace(status=Status.NEW)]
            return other
        if point < bounds[1]:
            rule = replace(rule, past=other)
        else:
            condition = draw_condition(rule.value.kind, self._rng)
            self.exceptions[rule.about] = condition
            rule = replace(rule, exemption=Exemption(condition, other))
        self.planned.append(planned._replace(rule=rule))
        return None

    def _other(self, value: Value) -> Value:
        """Another value of the same kind; a name that no entity has."""
        while True:
            other = value._replace(bare=draw_value(value.kind, self._rng))
            if other != value and other.bare not in self._used:
                return other


def _plan_thing(thing: Thing, value: Value, wordings: Wordings) -> Planned:
    shelf = thing.shelf
    rule = Rule(thing.about, shelf.gist(thing.name), value, wordings, {"s": thing.name})
    return Planned(rule, shelf.titles, shelf.remarks, shelf.key, thing.about)
