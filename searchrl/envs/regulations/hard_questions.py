"""Makes the tasks of a shared handbook: one to three hops, comparisons, counts, relative dates.

A task is a pure function of (district, school, kind, ordinal). Every one of its queries finds the
article that it is for. Called by `env.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from searchrl.envs.regulations.district import (
    District,
    Hop,
    House,
    Relative,
    Thing,
    Trail,
)
from searchrl.envs.regulations.names import MONTHS, Value, ValueKind, magnitude, spell
from searchrl.envs.regulations.prose import begin
from searchrl.envs.regulations.questions import (
    ASKED_WITH_CONDITION,
    COMPARISON,
    COUNTING,
    NOT_REGULATED,
    NOT_REGULATED_ANSWER,
    RELATIVE_DATE,
    THREE_HOP,
    TWO_HOP,
    UNSEEN_SHARE,
    Draft,
    Question,
    frame_question,
    lower,
    pick,
)
from searchrl.envs.regulations.searching import content_words
from searchrl.envs.regulations.wordings import (
    Wording,
    Wordings,
    load_district_words,
    load_phrases,
    shelf_named,
)

NUM_COUNTED = 3
"""Things of a counting task; each needs a search."""

_SCHOOL_NAMED = 0.6
"""How many questions name the school; the prompt always does."""

_TRIES = 3
"""How often every wording is tried, each time with other synonyms, until its queries find."""

_Item = TypeVar("_Item")
_FIRST_MONTHS = frozenset(MONTHS[:8])
_NO_WORDINGS = Wordings(both=())


def draft_hard_task(district: District, number: int, kind: str, ordinal: int) -> Draft:
    """The `ordinal`-th task of `kind` about school `number` of the district.

    Wraps around when the school has no more.
    """
    house = district.houses[number]
    key = f"{district.key}/{house.place}/{kind}"
    # Counted from the end where the words of no wording find the first choice.
    for choice in (ordinal, -1 - ordinal):
        # The order of subjects must not depend on the ordinal, or tasks would repeat.
        writer = _Writer(district, house, Random(f"{key}/{choice}"), Random(key))
        draft = writer.draft(kind, choice)
        found = zip(draft.queries, draft.gold_ids, strict=False)
        if all(district.finder.finds(query, gold) for query, gold in found):
            break
    return draft


def _ends(trail: Trail) -> bool:
    return trail.hops[-1].is_stated


class _Asking(NamedTuple):
    """How something can be asked; `described` is what `{p}` stands for, `slots` the rest."""

    questions: Wordings
    indirect: Wordings
    slots: Mapping[str, str]
    trail: Trail | None = None
    wants_date: bool = False


class _Asked(NamedTuple):
    """A question, and the words in it that tell what to search for first."""

    text: str
    core: str
    words: str
    is_seen: bool


class _Writer:
    """Writes tasks about one school of a district."""

    def __init__(self, district: District, house: House, rng: Random, order: Random) -> None:
        self._district = district
        self._house = house
        self._rng = rng
        self._order = order
        self._phrases = load_phrases()
        self._words = load_district_words()

    def draft(self, kind: str, ordinal: int) -> Draft:
        """The task that stands at `ordinal` in the order of its kind."""
        if kind in (TWO_HOP, THREE_HOP):
            num_hops = 2 if kind == TWO_HOP else 3
            trails = [one for one in self._house.trails if len(one.hops) == num_hops]
            return self.follow(self._pick([one for one in trails if _ends(one)], ordinal))
        if kind == RELATIVE_DATE:
            return self.date(self._pick(self._house.relatives, ordinal))
        if kind == COMPARISON:
            return self.compare(ordinal)
        if kind == COUNTING:
            return self.count(ordinal)
        if kind == NOT_REGULATED:
            return self.not_regulated(ordinal)
        return self.lookup(ordinal)

    # Kinds of task.

    def lookup(self, ordinal: int) -> Draft:
        """Ask for a topic's rule, for what a chain states about something named, or for a thing."""
        house = self._house
        hops = {hop.about: (trail, hop) for trail in house.trails for hop in trail.hops}
        stated = [(trail, hop) for trail, hop in hops.values() if hop.is_stated]
        choices = [*house.topics, *stated, *house.things]
        chosen = self._pick(choices, ordinal)
        if isinstance(chosen, Thing):
            return self._ask_for((chosen.about,), _ask_thing(chosen))
        if isinstance(chosen, tuple):
            trail, hop = chosen
            slots = {"s": self._rng.choice(trail.subject.names)}
            place = trail.hops.index(hop)
            if place:
                slots = {"p": self._entity(trail.hops[place - 1])}
            return self._ask_for((hop.about,), _Asking(hop.questions, hop.indirect, slots))
        asking = _Asking(chosen.questions, chosen.indirect, {})
        return self._ask_for((house.about(chosen.key),), asking)

    def follow(self, trail: Trail) -> Draft:
        """Ask for the last hop of a chain: each search has to find the name for the next one."""
        hops = trail.hops
        last = hops[-1]
        asking = _Asking(last.questions, last.indirect, {}, trail)
        return self._ask_for(tuple(hop.about for hop in hops), asking, self._queries_after(trail))

    def date(self, relative: Relative) -> Draft:
        """Ask for a date that the handbook gives as so many days before or after an event."""
        shelf = relative.thing.shelf
        asking = _Asking(
            shelf.questions, shelf.indirect, {"s": relative.thing.name}, wants_date=True
        )
        event = relative.event.name.removeprefix("the ")
        place = self._house.place
        later = ((f"{event} date {place}", f"date of {event} {place}", f"{event} {place}"),)
        draft = self._ask_for((relative.thing.about, relative.event_about), asking, later)
        more = {**draft.more, "then": "date"}
        return draft._replace(answers=relative.date.answers, more=more, condition="")

    def compare(self, ordinal: int) -> Draft:
        """Ask which of two things has the greater, or the lesser, value."""
        comparisons = self._words.comparisons
        shelves = list(dict.fromkeys(one.shelf for one in comparisons))
        shelf = shelves[ordinal % len(shelves)]
        pair = self._things(shelf, 2, ordinal // len(shelves))
        ways = [one for one in comparisons if one.shelf == shelf]
        way = self._rng.choice(ways)
        first, second = self._rng.sample(pair, 2)
        by_size = sorted(pair, key=self._magnitude)
        right = by_size[0 if way.is_least else -1]
        slots = {"a": first.name, "b": second.name}
        noun = right.shelf.noun
        draft = self._ask_about((first, second), way.questions, slots)
        return draft._replace(
            answers=(
                right.name,
                f"the {right.name}",
                f"the {noun} of the {right.name}",
                f"the {noun} for the {right.name}",
            ),
            bridge=first.name,
            more={
                **draft.more,
                "then": "least" if way.is_least else "greatest",
                "guesses": [first.name, second.name],
            },
        )

    def count(self, ordinal: int) -> Draft:
        """Ask how many of some things have a value below, or above, a limit."""
        counts = self._words.counts
        shelves = list(dict.fromkeys(one.shelf for one in counts))
        shelf = shelves[ordinal % len(shelves)]
        things = self._things(shelf, NUM_COUNTED, ordinal // len(shelves))
        way = self._rng.choice([one for one in counts if one.shelf == shelf])
        limit = self._limit(things)
        below = sum(self._magnitude(one) < magnitude(limit.bare) for one in things)
        right = below if way.is_below else NUM_COUNTED - below
        listed = [f"the {one.name}" for one in things]
        slots = {"l": f"{', '.join(listed[:-1])} and {listed[-1]}", "t": limit.text}
        draft = self._ask_about(things, way.questions, slots)
        return draft._replace(
            answers=(str(right), spell(right), *(("none",) if right == 0 else ())),
            bridge="1",
            more={
                **draft.more,
                "then": "below" if way.is_below else "above",
                "limit": limit.bare,
                "guesses": [str(number) for number in range(NUM_COUNTED + 1)],
            },
        )

    def not_regulated(self, ordinal: int) -> Draft:
        """Ask for what this school does not regulate, though others of the district may.

        In turn a topic, a thing, what is at the start of a chain, and its last hop.
        """
        house = self._house
        silent = [one for one in house.trails if not _ends(one)]
        pools: tuple[Sequence[Any], ...] = (
            house.absent_topics, house.absent_things, house.absent_trails, silent
        )  # fmt: skip
        pool = pools[ordinal % len(pools)]
        chosen = self._pick(pool, ordinal // len(pools))
        if isinstance(chosen, Trail):
            return self._ask_silent(chosen)
        if isinstance(chosen, Thing):
            shelf, about = chosen.shelf, chosen.about
            gist, asking = shelf.gist(chosen.name), _ask_thing(chosen)
            kind = shelf.kind
        else:
            about, gist, kind = house.about(chosen.key), chosen.gist, chosen.kind
            asking = _Asking(chosen.questions, chosen.indirect, {})
        asked = next(self._askings(asking))
        return self._silent(asked, (about,), (gist,), (self._placed(asked.words),), kind)

    def _ask_silent(self, trail: Trail) -> Draft:
        """Ask along a chain: of its hops none is stated, or all but the last."""
        last = trail.hops[-1]
        if not trail.hops[0].is_stated:
            slots = {"s": self._rng.choice(trail.subject.names)}
            whole = trail if len(trail.hops) > 1 else None
            asked = next(self._askings(_Asking(last.questions, last.indirect, slots, whole)))
            first = trail.hops[0]
            queries = (self._placed(asked.words),)
            return self._silent(asked, (first.about,), (first.gist,), queries, last.kind)
        hops = trail.hops
        asking = _Asking(last.questions, last.indirect, {}, trail)
        abouts = tuple(hop.about for hop in hops)
        asked, queries = self._find(asking, "", abouts[:-1], self._queries_after(trail)[:-1])
        queries = (*queries, self._queries_after(trail)[-1][0])
        gists = tuple(hop.gist for hop in hops)
        return self._silent(asked, abouts, gists, queries, last.kind)

    # What is common to them.

    def _pick(self, items: Sequence[_Item], ordinal: int) -> _Item:
        return items[pick(range(len(items)), ordinal, self._order)]

    def _things(self, shelf: str, count: int, number: int) -> list[Thing]:
        """The `number`-th set of things of a shelf with different values that can be compared."""
        things = [
            one
            for one in self._house.things
            if one.shelf.key == shelf and self._finds(self._placed(one.name), one.about)
        ]
        self._order.shuffle(things)
        groups = [things]
        if shelf_named(shelf).kind is ValueKind.DATE:
            # Whether a year begins in January or in September must not matter.
            months = {one.about: self._value(one).bare.split()[1] for one in things}
            early = [one for one in things if months[one.about] in _FIRST_MONTHS]
            groups = [early, [one for one in things if one not in early]]
        sets = {}
        for shift in range(len(things)):
            for group in groups:
                turned = group[shift:] + group[:shift]
                for start in range(0, len(turned) - count + 1, count):
                    chosen = turned[start : start + count]
                    if len({self._value(one).bare for one in chosen}) == count:
                        sets.setdefault(frozenset(one.about for one in chosen), chosen)
        different = list(sets.values())
        return different[number % len(different)]

    def _limit(self, things: Sequence[Thing]) -> Value:
        """A value that none of the things has, so that any count is about as likely."""
        values = sorted((self._value(one) for one in things), key=lambda one: magnitude(one.bare))
        place = self._rng.randint(0, len(values))
        unit = values[0].unit
        if ":" in values[0].bare:
            minutes = [
                60 * hour + minute for hour, minute in map(magnitude, (one.bare for one in values))
            ]
            steps = self._between(minutes, place, 5)
            return values[0]._replace(bare=f"{steps // 60:02d}:{steps % 60:02d}")
        number = self._between([magnitude(one.bare)[0] for one in values], place, 1)
        pound = "£" if values[0].bare.startswith("£") else ""
        return Value(values[0].kind, f"{pound}{number}", unit)

    def _between(self, sizes: Sequence[int], place: int, step: int) -> int:
        """A number above `place` of the sizes and below the others, if there is room; near them."""
        least = sizes[place - 1] + step if place else sizes[0] - 6 * step
        most = sizes[place] - step if place < len(sizes) else sizes[-1] + 6 * step
        number = least + step * self._rng.randint(0, max(0, (most - least) // step))
        while number in sizes:
            number += step
        return max(number, step)

    def _value(self, thing: Thing) -> Value:
        return self._district.stated[thing.about][1].value

    def _magnitude(self, thing: Thing) -> tuple[int, ...]:
        return magnitude(self._value(thing).bare)

    def _ask_about(
        self, things: Sequence[Thing], wordings: Wordings, slots: Mapping[str, str]
    ) -> Draft:
        """Ask one question about several things; each of them has to be searched for."""
        asking = _Asking(wordings, _NO_WORDINGS, slots)
        abouts = tuple(one.about for one in things)
        for asked in self._askings(asking, "", abouts):
            rest = asked.words
            for name in slots.values():
                rest = rest.replace(content_words(name), "")
            rest = " ".join(word for word in rest.split() if any(c.isalpha() for c in word))
            wanted = [
                (self._placed(f"{rest} {one.name}"), self._placed(one.name), one.name)
                for one in things
            ]
            queries = [self._first_that_finds(*pair) for pair in zip(wanted, abouts, strict=True)]
            if all(queries):
                break
        found = tuple(query or options[0] for query, options in zip(queries, wanted, strict=True))
        return self._draft(asked, abouts, found, "")

    def _ask_for(
        self, abouts: tuple[str, ...], asking: _Asking, later: Sequence[Sequence[str]] = ()
    ) -> Draft:
        """Ask for the last of `abouts`, now and then for its exception."""
        condition, when = self._district.exceptions.get(abouts[-1]), ""
        if condition and not asking.wants_date and self._rng.random() < ASKED_WITH_CONDITION:
            when = self._rng.choice(condition.texts)
            last = next(a for a in self._district.stated if a.startswith(f"{abouts[-1]}@"))
            abouts = (*abouts[:-1], last)
        asked, queries = self._find(asking, when, abouts, later)
        return self._draft(asked, abouts, queries, when)

    def _find(
        self,
        asking: _Asking,
        when: str,
        abouts: Sequence[str],
        later: Sequence[Sequence[str]],
    ) -> tuple[_Asked, tuple[str, ...]]:
        """A wording whose words find the first article, and the queries for the others.

        If no wording finds it, the last one tried.
        """
        then = [
            self._first_that_finds(options, about) or options[0]
            for options, about in zip(later, abouts[1:], strict=True)
        ]
        for asked in self._askings(asking, when, abouts):
            query = self._placed(asked.words)
            if self._finds(query, abouts[0]):
                break
        return asked, (query, *then)

    def _finds(self, query: str, about: str) -> bool:
        return self._district.finder.finds(query, self._district.stated[about][0].passage.id)

    def _first_that_finds(self, queries: Sequence[str], about: str) -> str:
        return next((query for query in queries if self._finds(query, about)), "")

    def _placed(self, words: str) -> str:
        """The query with the school's name, which the prompt tells."""
        place = self._house.place
        return words if place in words.split() else f"{words} {place}"

    def _queries_after(self, trail: Trail) -> list[tuple[str, ...]]:
        """For each hop but the first, what may be typed once the hop before it was found."""
        pairs = zip(trail.hops, trail.hops[1:], strict=False)
        queries = []
        for before, hop in pairs:
            query = f"{self._entity(before)} {hop.attribute}"
            queries.append((query, self._placed(query), self._entity(before)))
        return queries

    def _entity(self, hop: Hop) -> str:
        return self._district.stated[hop.about][1].value.text.removeprefix("the ")

    # Wordings.

    def _askings(
        self, asking: _Asking, when: str = "", abouts: Sequence[str] = ()
    ) -> Iterator[_Asked]:
        """All wordings in random order, some times over; at least one.

        A question about a rule in words that training never shows is itself in such words.
        """
        rng = self._rng
        is_new = not self._district.unseen.isdisjoint(abouts)
        has_unseen = is_new or (self._district.has_unseen and rng.random() < UNSEEN_SHARE)
        cores = [(core, True) for core in asking.questions.of(has_unseen)]
        cores += [(core, False) for core in asking.indirect.of(has_unseen)]
        for _ in range(_TRIES):
            for core, is_direct in rng.sample(cores, len(cores)):
                asked = self._word(asking, core, is_direct, when, has_unseen)
                if not (is_new and asked.is_seen):
                    yield asked

    def _word(
        self, asking: _Asking, core: Wording, is_direct: bool, when: str, has_unseen: bool
    ) -> _Asked:
        rng, slots, is_seen, innermost = self._rng, dict(asking.slots), core.is_seen, ""
        if asking.trail is not None and len(asking.trail.hops) > 1:
            slots["p"], innermost, is_seen_too = self._describe(asking.trail, has_unseen)
            is_seen = is_seen and is_seen_too
        elif asking.trail is not None:
            slots["s"] = rng.choice(asking.trail.subject.names)
        text = self._phrases.fill(core.text, rng).format(**slots)
        words = content_words(innermost or f"{text} {when}")
        is_named = rng.random() < _SCHOOL_NAMED
        frames: list[Wording] = []
        if not is_direct:
            frames.append(self._choose(self._phrases.indirect, has_unseen))
        elif not (is_named or asking.wants_date):
            frames.append(self._choose(self._phrases.direct, has_unseen))
        else:
            frames.append(Wording("{Q}", True))
        asked = frame_question(text, frames[0], when, is_direct, rng.random() < 0.3)
        if is_named:
            frame = self._choose(self._words.school_frames, has_unseen)
            while "{q}" in frame.text and not is_direct:
                frame = self._choose(self._words.school_frames, has_unseen)
            frames.append(frame)
            asked = self._fill(frame, asked)
        if asking.wants_date:
            frames.append(self._choose(self._words.date_frames, has_unseen))
            asked = self._fill(frames[-1], asked)
        is_seen = is_seen and all(frame.is_seen for frame in frames)
        return _Asked(asked, core.text, words, is_seen)

    def _describe(self, trail: Trail, has_unseen: bool) -> tuple[str, str, bool]:
        """What stands for the last hop's name: all of it, its innermost part, whether it is seen."""
        rng, is_seen = self._rng, True
        text = innermost = ""
        for hop in trail.hops[:-1]:
            assert hop.descriptions is not None, f"nothing describes what {hop.about} finds"
            chosen = self._choose(hop.descriptions, has_unseen)
            slots = {"p": text, "s": rng.choice(trail.subject.names)}
            text = self._phrases.fill(chosen.text, rng).format(**slots)
            innermost = innermost or text
            is_seen = is_seen and chosen.is_seen
        return text, innermost, is_seen

    def _choose(self, wordings: Wordings, has_unseen: bool) -> Wording:
        return self._rng.choice(wordings.of(has_unseen))

    def _fill(self, frame: Wording, question: str) -> str:
        text = self._phrases.fill(frame.text, self._rng)
        return text.format(q=lower(question), Q=begin(question), h=self._house.name)

    # Drafts.

    def _draft(
        self, asked: _Asked, abouts: tuple[str, ...], queries: tuple[str, ...], when: str
    ) -> Draft:
        found = [self._district.stated[about] for about in abouts]
        last = found[-1][1]
        is_seen = asked.is_seen and self._district.unseen.isdisjoint(abouts)
        return Draft(
            question=Question(asked.text, queries[0], asked.core, asked.is_seen),
            answers=last.value.answers,
            gold_ids=tuple(article.passage.id for article, _ in found),
            queries=queries,
            value_kind=last.value.kind,
            abouts=abouts,
            gists=tuple(one.gist for _, one in found),
            is_seen=is_seen,
            bridge=found[0][1].value.bare if len(found) > 1 else "",
            condition=when,
            more={"place": self._house.place},
        )

    def _silent(
        self,
        asked: _Asked,
        abouts: tuple[str, ...],
        gists: tuple[str, ...],
        queries: tuple[str, ...],
        kind: ValueKind,
    ) -> Draft:
        """The task of which the last of `abouts` is not stated."""
        found = [self._district.stated[about][1] for about in abouts[:-1]]
        return Draft(
            question=Question(asked.text, queries[0], asked.core, asked.is_seen),
            answers=(NOT_REGULATED_ANSWER,),
            gold_ids=(),
            queries=queries,
            value_kind=kind,
            abouts=abouts,
            gists=gists,
            is_seen=asked.is_seen and self._district.unseen.isdisjoint(abouts),
            bridge=found[0].value.bare if found else "",
            more={"place": self._house.place},
        )


def _ask_thing(thing: Thing) -> _Asking:
    return _Asking(thing.shelf.questions, thing.shelf.indirect, {"s": thing.name})
