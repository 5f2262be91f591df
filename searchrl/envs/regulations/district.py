"""Procedurally generated districts: one long handbook that several schools share.

A district is a pure function of (world_seed, split, number). Owns what each of its schools
regulates, which rules are amended, which dates are relative, and how rules are gathered into
articles. Every article is about one school and says which. Wordings are in `wordings.py`, tasks in `hard_questions.py`. Called by `env.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import NamedTuple

from searchrl.core.episode import Passage
from searchrl.envs.regulations.names import (
    MONTHS,
    DistinctValues,
    Value,
    ValueKind,
    draw_value,
    invent_name,
    school_names,
)
from searchrl.envs.regulations.prose import (
    Article,
    Composer,
    Exemption,
    Rule,
    Statement,
    Status,
    about_exception,
    begin,
)
from searchrl.envs.regulations.searching import Finder
from searchrl.envs.regulations.wordings import (
    Condition,
    Event,
    Family,
    Shelf,
    Subject,
    Topic,
    Wordings,
    load_district_words,
    load_families,
    load_phrases,
    load_shelves,
    load_topics,
    relation_of,
    shelf_named,
)

SCHOOLS_PER_DISTRICT = 4
NUM_DISTRICTS: Mapping[str, int] = {"test": 40, "train": 200, "validation": 40}
"""Districts per split, in the order in which the splits take their names from `school_names`.

Few enough that tasks in any order find most handbooks built."""

ARTICLES_PER_SCHOOL = 78
LEAST_WORDS, MOST_WORDS = 60, 120
"""Words of an article's text."""

_FIRST_DISTRICT = dict(
    zip(NUM_DISTRICTS, accumulate(NUM_DISTRICTS.values(), initial=0), strict=False)
)
_KEPT = 96
"""Districts in memory, some three megabytes each."""

_NUM_TOPICS = 34
_SUBJECTS = {"club": 8, "venue": 6, "form": 5, "fund": 5}
_THINGS_IN_POOL, _THINGS, _NUM_RELATIVE = 32, 18, 8
_EXEMPTION, _PAST, _AMENDED, _RELATED, _INVENTED, _UNSEEN = 0.3, 0.15, 0.15, 0.75, 0.15, 0.4
"""Shares: rules with an exception, with a value of the past, with an amendment; entities with a
further hop; invented names; articles of the test split that may use its own wordings."""

_COMMON_YEAR = 2023


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
class District:
    """The handbook of several schools and what is known of it.

    `stated` holds, by its key, the article and the statement of every rule and exception as it
    holds now: an amended rule's new value. `exceptions` maps a rule's key to the condition of its
    exception. `unseen` are the keys that are stated in wordings that training never shows.
    """

    key: str
    houses: tuple[House, ...]
    articles: tuple[Article, ...]
    exceptions: Mapping[str, Condition]
    unseen: frozenset[str]
    has_unseen: bool
    passages: tuple[Passage, ...] = field(init=False)
    stated: Mapping[str, tuple[Article, Statement]] = field(init=False)
    finder: Finder = field(init=False)

    def __post_init__(self) -> None:
        passages = tuple(article.passage for article in self.articles)
        object.__setattr__(self, "passages", passages)
        object.__setattr__(self, "finder", Finder(passages))
        stated = {
            one.about: (article, one)
            for article in self.articles
            for one in article.statements
            if one.status is not Status.REPLACED
        }
        object.__setattr__(self, "stated", stated)

    def statements(self) -> Mapping[str, Sequence[Statement]]:
        """What each article states, by its id."""
        return {article.passage.id: article.statements for article in self.articles}


@lru_cache(maxsize=_KEPT)
def make_district(world_seed: int, split: str, number: int) -> District:
    """Build district `number` of `split`. Pure; the most recent ones are kept."""
    first = (_FIRST_DISTRICT[split] + number) * SCHOOLS_PER_DISTRICT
    names = school_names(world_seed)[first : first + SCHOOLS_PER_DISTRICT]
    key = f"regulations/{world_seed}/{split}/hard/{number}"
    rng, has_unseen = Random(key), split == "test"
    offer, used = _Offer.draw(rng), set[str]()
    houses, articles, unseen = [], [], set[str]()
    exceptions: dict[str, Condition] = {}
    for name in names:
        founder = _Founder(name, [other for other in names if other != name], rng, offer, used)
        houses.append(founder.found())
        written = _Writer(founder, rng, has_unseen)
        articles += written.articles()
        unseen |= written.unseen
        exceptions |= founder.exceptions
    rng.shuffle(articles)
    numbered = (
        one._replace(passage=replace(one.passage, id=f"art-{place:03d}"))
        for place, one in enumerate(articles, start=1)
    )
    return District(
        key, tuple(houses), tuple(numbered), exceptions, frozenset(unseen), has_unseen
    )


def date_from(event: str, days: int) -> str:
    """The date so many days after an event's date; `14 May`, -12 → `2 May`. Empty if unclear.

    It is unclear if it depends on the year: a leap day is between the two, or they are in different
    years.
    """
    day, month = event.split()
    start = date(_COMMON_YEAR, MONTHS.index(month) + 1, int(day))
    end = start + timedelta(days)
    if start.year != end.year or (start.month <= 2) != (end.month <= 2):
        return ""
    return f"{end.day} {MONTHS[end.month - 1]}"


class _Offer(NamedTuple):
    """The things that the schools of one district may regulate; each school takes some."""

    things: Mapping[str, tuple[str, ...]]

    @classmethod
    def draw(cls, rng: Random) -> _Offer:
        named = {
            shelf.key: tuple(
                f"{invent_name(rng)} {thing}" if rng.random() < _INVENTED else thing
                for thing in rng.sample(shelf.things, _THINGS_IN_POOL)
            )
            for shelf in load_shelves()
        }
        return cls(named)


class _Planned(NamedTuple):
    """A rule that waits for an article. Rules of the same `chain` stand in different ones."""

    rule: Rule
    titles: Sequence[str]
    remarks: Sequence[str]
    area: str
    chain: str
    status: Status = Status.CURRENT
    is_first: bool = False


class _Founder:
    """Draws what one school of a district regulates."""

    def __init__(
        self, name: str, others: Sequence[str], rng: Random, offer: _Offer, used: set[str]
    ) -> None:
        self.name, self.others = name, tuple(others)
        self.place = name.split()[0]
        self.planned: list[_Planned] = []
        self.exceptions: dict[str, Condition] = {}
        self.absent_topics: list[Topic] = []
        self._rng = rng
        self._offer = offer
        self._used = used
        self._names = DistinctValues(rng)

    def found(self) -> House:
        relative = load_district_words().relative_dates
        events = {event.topic: event for event in relative.events}
        topics = self._rng.sample(load_topics(), len(load_topics()))
        topics.sort(key=lambda topic: topic.key not in events)
        present, self.absent_topics = topics[:_NUM_TOPICS], topics[_NUM_TOPICS:]
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
            absent_topics=tuple(self.absent_topics),
            absent_trails=tuple(absent_trails),
            absent_things=tuple(absent_things),
        )

    def _add_topic(self, topic: Topic, event: Event | None) -> None:
        value = Value(topic.kind, draw_value(topic.kind, self._rng), topic.unit)
        self._plan(
            _Planned(
                Rule(self._about(topic.key), topic.gist, value, topic.facts, {}),
                event.titles if event else topic.titles,
                topic.remarks,
                topic.area,
                topic.key,
                is_first=event is not None,
            ),
            # Other dates are counted from an event: it is on one day for all.
            has_exemption=event is None,
        )

    def _add_chains(self) -> tuple[list[Trail], list[Trail]]:
        rng, trails, absent = self._rng, list[Trail](), list[Trail]()
        for family in load_families():
            subjects = rng.sample(family.subjects, len(family.subjects))
            count = _SUBJECTS[family.key]
            chosen = subjects[:count]
            if family.key == "club":
                name = invent_name(rng)
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
        titles, remarks = family.link_titles, family.subject_remarks
        planned = _Planned(rule, titles, remarks, f"{family.key}/link", chain)
        former = self._plan(planned)
        is_club = family.value_kind is ValueKind.ROOM
        value = (
            Value(ValueKind.ROOM, self._draw_name(ValueKind.ROOM))
            if is_club
            else Value(family.value_kind, draw_value(family.value_kind, rng), family.unit)
        )
        self._plan_entity(family, known, entity, value, chain)
        if former:
            self._used.add(former.bare)
            # What holds for the entity that an amendment replaced stands in the handbook, too.
            old = self._hops(family, subject, former.bare)[1]
            other = value._replace(bare=draw_value(value.kind, rng))
            self._plan_entity(family, old._replace(about=f"{old.about}:former"), former, other, chain)
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
            titles, remarks = relation.titles, relation.remarks
            self._plan(_Planned(rule, titles, remarks, relation.key, chain))
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
        titles, remarks, area = family.entity_titles, family.entity_remarks, f"{family.key}/entity"
        self._plan(_Planned(rule, titles, remarks, area, chain))

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
            names = self._rng.sample(self._offer.things[shelf.key], _THINGS_IN_POOL)
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
        free = [thing for thing in absent if thing.shelf is shelf_named(words.shelf)]
        for thing in free[:_NUM_RELATIVE]:
            absent.remove(thing)
            event = self._rng.choice(words.events)
            event_about = self._about(event.topic)
            current = self._current(event_about)
            days, bare = 0, ""
            while not bare:
                days = self._rng.choice((-1, -1, -1, 1)) * self._rng.randint(3, 24)
                bare = date_from(current.bare, days)
            text = f"{abs(days)} days {'before' if days < 0 else 'after'} {event.name}"
            planned = _plan_thing(thing, Value(ValueKind.DATE, text), words.facts)
            self.planned.append(planned._replace(chain=event.topic))
            yield Relative(thing, event, event_about, Value(ValueKind.DATE, bare))

    def _current(self, about: str) -> Value:
        return next(
            one.rule.value
            for one in self.planned
            if one.rule.about == about and one.status is not Status.REPLACED
        )

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

    def _plan(self, planned: _Planned, has_exemption: bool = True) -> Value | None:
        """Have the rule written, with an exception, a value of the past or an amendment.

        Returns the value that an amendment replaced.
        """
        rule, point = planned.rule, self._rng.random()
        bounds = list(accumulate((_AMENDED, _PAST, _EXEMPTION if has_exemption else 0.0)))
        if point >= bounds[2]:
            self.planned.append(planned)
            return None
        other = self._other(rule.value)
        if point < bounds[0]:
            old = planned._replace(rule=replace(rule, value=other), status=Status.REPLACED)
            self.planned += [old, planned._replace(status=Status.NEW)]
            return other
        if point < bounds[1]:
            rule = replace(rule, past=other)
        else:
            is_date = rule.value.kind is ValueKind.DATE
            conditions = [one for one in load_phrases().conditions if not (one.is_time and is_date)]
            condition = self._rng.choice(conditions)
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


def _plan_thing(thing: Thing, value: Value, wordings: Wordings) -> _Planned:
    shelf = thing.shelf
    rule = Rule(thing.about, shelf.gist(thing.name), value, wordings, {"s": thing.name})
    return _Planned(rule, shelf.titles, shelf.remarks, shelf.key, thing.about)


class _Writer(Composer):
    """Writes the articles of one school; `unseen` are the keys stated in unseen wordings."""

    def __init__(self, founder: _Founder, rng: Random, has_unseen: bool) -> None:
        super().__init__(load_phrases(), rng, has_unseen=False)
        self.unseen: set[str] = set()
        self._founder = founder
        self._is_test = has_unseen
        self._words = load_district_words()

    def articles(self) -> list[Article]:
        return [self._page(group) for group in self._groups()]

    def _groups(self) -> list[list[_Planned]]:
        """The rules, by article: some of one area, then some of another."""
        rng = self._rng
        planned = rng.sample(self._founder.planned, len(self._founder.planned))
        planned.sort(key=lambda one: (not one.is_first, one.area))
        chunks: list[list[_Planned]] = []
        for one in planned:
            last = chunks[-1] if chunks else []
            is_near = bool(last) and last[0].area == one.area and not one.is_first
            if is_near and len(last) < 2 and last[0].chain != one.chain and rng.random() < 0.6:
                last.append(one)
            else:
                chunks.append([one])
        first = [chunk for chunk in chunks if chunk[0].is_first]
        rest = [chunk for chunk in chunks if not chunk[0].is_first]
        rng.shuffle(rest)
        groups: list[list[_Planned]] = []
        for chunk in first + rest:
            if len(groups) < ARTICLES_PER_SCHOOL:
                groups.append(list(chunk))
                continue
            chains = {one.chain for one in chunk}
            fitting = (g for g in groups if chains.isdisjoint(one.chain for one in g))
            min(fitting, key=len).extend(chunk)
        return groups

    def _page(self, group: Sequence[_Planned]) -> Article:
        rng, founder = self._rng, self._founder
        self._has_unseen = self._is_test and rng.random() < _UNSEEN
        opening = self._fill(self._choose(self._words.openings).text, {"h": founder.name})
        sentences, statements = list[str](), list[Statement]()
        for planned in group:
            text, stated, is_seen = self._put(planned)
            if not sentences and opening.endswith(","):
                text, stated = _lowered(text, stated, planned.rule)
            sentences.append(text)
            place, status = founder.place, planned.status
            statements += (one._replace(place=place, status=status) for one in stated)
            if not is_seen and status is not Status.REPLACED:
                self.unseen.update(one.about for one in stated)
        sentences[0] = f"{opening} {sentences[0]}"
        self._extend(sentences, group)
        return Article(
            Passage("", " ".join(sentences), self._title(group)), tuple(statements)
        )

    def _put(self, planned: _Planned) -> tuple[str, list[Statement], bool]:
        """A rule in sentences; one that replaces another says so."""
        rule = planned.rule
        if planned.status is not Status.NEW:
            return self._state(rule)
        wording, frame = self._choose(rule.wordings), self._choose(self._words.amendments)
        main = self._fill(wording.text, {**rule.slots, "v": rule.value.text})
        stated = [Statement(rule.about, rule.gist, rule.value, main)]
        return frame.text.format(main=main), stated, wording.is_seen and frame.is_seen

    def _extend(self, sentences: list[str], group: Sequence[_Planned]) -> None:
        """Put remarks between the sentences until the article is long enough.

        They talk about what the article states, about the school, about another one, or about a
        matter of which the school has no rule.
        """
        rng, words, founder = self._rng, self._words, self._founder
        remarks = [(remark, one.rule.slots) for one in group for remark in one.remarks]
        rng.shuffle(remarks)
        remarks = list(dict(remarks).items())
        others = [
            (0.5, words.general_remarks, {"h": founder.name}),
            (0.2, words.other_remarks, {"o": rng.choice(founder.others)}),
            (0.3, rng.choice(founder.absent_topics).remarks, {}),
        ]
        remarks[:0] = [(rng.choice(texts), slots) for p, texts, slots in others if rng.random() < p]
        enough = rng.randint(LEAST_WORDS + 4, MOST_WORDS - 25)
        count = sum(len(one.split()) for one in sentences)
        for remark, slots in remarks:
            if count >= enough:
                break
            text = begin(self._fill(remark, slots))
            sentences.insert(rng.randint(1, len(sentences)), text)
            count += len(text.split())

    def _title(self, group: Sequence[_Planned]) -> str:
        """The title of the first rule, often with that of another."""
        rng, titles = self._rng, list[str]()
        for planned in group[:: max(1, len(group) - 1)][:2]:
            title = begin(self._fill(rng.choice(planned.titles), planned.rule.slots))
            if planned.status is Status.NEW:
                title = rng.choice(self._words.amendment_titles).format(t=title)
            titles.append(title)
        return "; ".join(dict.fromkeys(titles if rng.random() < 0.6 else titles[:1]))


def _lowered(
    text: str, stated: Sequence[Statement], rule: Rule
) -> tuple[str, list[Statement]]:
    """A rule's sentences as they go on after a comma, and what they state there."""
    names = (rule.value.text, *rule.slots.values())
    if any(name[0].isupper() and text.startswith(name) for name in names):
        return text, list(stated)
    low = text[0].lower() + text[1:]
    return low, [
        one._replace(clause=low[: len(one.clause)]) if text.startswith(one.clause) else one
        for one in stated
    ]
