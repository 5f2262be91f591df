"""The tasks of a school: questions, right answers, and the queries that find them.

A task is a pure function of (school, kind, ordinal). A word search with the question's own words
finds the article that answers it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Literal, NamedTuple

from searchrl.core.episode import Task
from searchrl.envs.regulations.world.names import ValueKind
from searchrl.envs.regulations.world.prose import Article, Statement, Status, about_exception, begin
from searchrl.envs.regulations.world.school import Link, School, room_family
from searchrl.envs.regulations.world.searching import content_words
from searchrl.envs.regulations.world.wordings import (
    Condition,
    Family,
    Shelf,
    Subject,
    Wording,
    Wordings,
    load_phrases,
)

LOOKUP = "lookup"
REWORDED = "reworded"
RENAMED = "renamed"
TWO_HOP = "two_hop"
CROWDED = "crowded"
THREE_HOP = "three_hop"
NOT_REGULATED = "not_regulated"
TASK_KINDS = (LOOKUP, REWORDED, RENAMED, TWO_HOP, CROWDED, THREE_HOP, NOT_REGULATED)
"""Kinds of task; also the names of metrics. `MIXES` has those of each level.

Three of them need a search in other words for what a first one did not find: `reworded` the
matter's own name, `renamed` the other names of a club or form, which the matter's own name does not
replace, and `crowded`, whose second hop finds nothing but remarks about a name, that name with what
is asked about it."""
IN_OTHER_WORDS = (REWORDED, RENAMED, CROWDED)
TaskKind = Literal[
    "lookup", "reworded", "renamed", "two_hop", "crowded", "three_hop", "not_regulated"
]
"""One of `TASK_KINDS`, as a type of settings."""

SEEN_WORDING, UNSEEN_WORDING = "seen_wording", "unseen_wording"
"""Slices of the test split: whether training shows the question's and the articles' wordings."""
NOT_REGULATED_ANSWER = "not regulated"
"""The right answer if the handbook says nothing."""
ASKED_WITH_CONDITION = 0.6
"""Share of the questions on a rule with an exception that ask for the exception."""
UNSEEN_SHARE = 0.5
"""Share of the questions of the test split that may use wordings that training never shows."""


class Question(NamedTuple):
    """A question with the first query that its words make.

    `template` is its core before synonyms, names and frames went in; `is_seen`: training may show
    all its wordings.
    """

    text: str
    query: str
    template: str
    is_seen: bool


def draft_task(school: School, kind: str, ordinal: int) -> Task:
    """The `ordinal`-th task of `kind` at `school`, without its place in a split.

    Wraps around when a school has no more. Of its `meta`, `queries` finds the evidence hop by hop,
    but for one hop of a task that needs other words: `again` does; `bridge` is the answer of the
    first of several hops, `abouts` and `gists` name the rule of each hop, `condition` is the
    question's phrase for when or whom, `value_kind` the domain of a plausible guess.
    """
    rng = Random(f"{school.key}/{kind}/{ordinal}")
    # The order of subjects must not depend on the ordinal, or tasks would repeat.
    order = Random(f"{school.key}/{kind}")
    writer = _Writer(school, rng)
    if kind in (TWO_HOP, CROWDED, THREE_HOP):
        links = [
            link
            for link in school.links
            if link.is_crowded == (kind == CROWDED) and (kind != THREE_HOP or link.relation)
        ]
        first = pick(range(len(links)), ordinal, order)
        drafts = (writer.chain(link, kind == THREE_HOP) for link in links[first:] + links[:first])
        return next(filter(None, drafts))
    if kind == NOT_REGULATED:
        return writer.not_regulated(ordinal, order)
    if kind in IN_OTHER_WORDS:
        return writer.lost(kind, ordinal, order)
    sources = [*school.topics, *school.links, *school.links, *school.things]
    number = pick(range(len(sources)), ordinal, order)
    return writer.lookup(number)


def pick(items: Sequence[int], ordinal: int, order: Random) -> int:
    """The item at `ordinal` of the items in random order; wraps around."""
    return order.sample(items, len(items))[ordinal % len(items)]


class _Asking(NamedTuple):
    """Ways to ask for something: whole questions, clauses for frames, and their slots.

    `descriptions` stand for `{p}`, each within the next one.
    """

    questions: Wordings
    indirect: Wordings
    slots: tuple[dict[str, str], ...] = ({},)
    descriptions: tuple[Wordings, ...] = ()


class _Absent(NamedTuple):
    """Something the handbook does not state, the names it goes by, and ways to ask for it."""

    about: str
    gist: str
    kind: ValueKind
    asking: _Asking
    names: tuple[str, ...] = ()

    def others(self, question: str) -> str:
        """The names that a question does not use."""
        return " ".join(name for name in self.names if name not in question)


class _Writer:
    def __init__(self, school: School, rng: Random) -> None:
        self._school = school
        self._rng = rng
        self._phrases = load_phrases()

    def lookup(self, number: int) -> Task:
        """Ask for a topic's rule, for what a link names, for an entity's value, or for a thing."""
        school = self._school
        if number < len(school.topics):
            topic = school.topics[number]
            return self._one(topic.key, _Asking(topic.questions, topic.indirect))
        number -= len(school.topics)
        if number < 2 * len(school.links):
            link = school.links[number % len(school.links)]
            family = link.family
            if number < len(school.links) or link.is_crowded:
                return self._one(link.abouts[0], _ask_link(family, link.subject))
            slots = ({"p": link.named},)
            asking = _Asking(family.entity_questions, family.entity_indirect, slots)
            return self._one(link.abouts[1], asking)
        shelf, thing = school.things[number - 2 * len(school.links)]
        return self._one(shelf.about(thing), _ask_thing(shelf, thing))

    def lost(self, kind: str, ordinal: int, order: Random) -> Task:
        """Ask in words that do not find the article, where other words do.

        If a handbook has no such question, one whose words do.
        """
        finds = self._school.finder.finds
        lost = list(self._renamed()) if kind == RENAMED else []
        lost = lost or list(self._reworded())
        first = pick(range(len(lost)), ordinal, order)
        for about, asking, again in lost[first:] + lost[:first]:
            draft = self._one(about, asking, again)
            if not finds(draft.meta["queries"][0], draft.gold_ids[0]):
                break
        return draft

    def _reworded(self) -> Iterator[tuple[str, _Asking, str]]:
        """Topics whose own name finds them: rule, ways to ask, and that name."""
        for topic in self._school.topics:
            article, statement = self._school.stated[topic.key]
            # One that replaces another shares its words with it.
            is_current = statement.status is Status.CURRENT
            if is_current and self._school.finder.finds(topic.key, article.passage.id):
                yield topic.key, _Asking(topic.questions, topic.indirect), topic.key

    def _renamed(self) -> Iterator[tuple[str, _Asking, str]]:
        """Links by a name in place of which the others find them, but not the rule's own name."""
        finds = self._school.finder.finds
        for link in self._school.links:
            article, statement = self._school.stated[link.abouts[0]]
            gold = article.passage.id
            for name in link.subject.names:
                others = " ".join(one for one in link.subject.names if one != name)
                if others and finds(others, gold) and not finds(statement.gist, gold):
                    asking = _ask_link(link.family, link.subject)._replace(slots=({"s": name},))
                    yield link.abouts[0], asking, others

    def chain(self, link: Link, is_long: bool) -> Task | None:
        """Ask for the last rule of a chain: each search has to find the name for the next one.

        None if a search does not find a hop, or if it does where the hop is to be crowded.
        """
        family, relation = link.family, link.relation
        first, second = link.abouts
        wanted, descriptions = family, [family.descriptions]
        # A word beside the name would find articles about others of its kind.
        hops = [(second, link.entity)]
        if is_long and relation is not None:
            # Asked is the room of a person who has to do with the entity.
            wanted, (who, where) = room_family(), link.further
            descriptions.append(relation.descriptions)
            hops = [(who, link.entity), (where, link.person)]
        finds = self._school.finder.finds
        golds = [article.passage.id for article in self._articles(*(about for about, _ in hops))]
        are_found = all(finds(name, gold) for (_, name), gold in zip(hops, golds, strict=True))
        again = self._school.stated[second][1].gist if link.is_crowded else ""
        if are_found == link.is_crowded or (again and not finds(again, golds[0])):
            return None
        *before, last = abouts = (first, *(about for about, _ in hops))
        about, condition = self._condition(last)
        if condition is not None and condition in map(self._school.exceptions.get, before):
            # Asked with it, the question could mean the exception of another hop.
            about, condition = last, None
        when = self._when(condition)
        asking = _Asking(
            wanted.entity_questions,
            wanted.entity_indirect,
            _names(link.subject),
            tuple(descriptions),
        )
        question = self._ask(asking, when, self._articles(*abouts))
        names = tuple(name for _, name in hops)
        return self._draft(question, (*before, about), names, link.entity, when, again)

    def not_regulated(self, ordinal: int, order: Random) -> Task:
        """Ask for a rule, for a chain's subject or for a thing that the handbook does not state.

        First come those for which a search finds passages that do not answer: an agent must read
        that the handbook is silent, not conclude it from an empty result.
        """
        school = self._school
        absent = [
            [
                _Absent(topic.key, topic.key, topic.kind, _Asking(topic.questions, topic.indirect))
                for topic in school.absent_topics
            ],
            [self._absent_subject(*item) for item in school.absent_subjects],
            [
                _Absent(shelf.about(thing), shelf.gist(thing), shelf.kind, _ask_thing(shelf, thing))
                for shelf, thing in school.absent_things
            ],
        ][ordinal % 3]
        chosen = absent[pick(range(len(absent)), ordinal // 3, order)]
        question = self._ask(chosen.asking)
        return _write(
            question,
            (NOT_REGULATED_ANSWER,),
            (),
            question.is_seen,
            queries=[question.query],
            bridge="",
            value_kind=str(chosen.kind),
            again=self._rng.choice([chosen.gist, chosen.others(question.text) or chosen.gist]),
            abouts=[chosen.about],
            gists=[chosen.gist],
            condition="",
        )

    def _absent_subject(self, family: Family, subject: Subject) -> _Absent:
        about, gist = f"{family.key}:{subject.key}", family.link_gist(subject)
        if self._rng.random() < 0.5:
            questions, indirect = family.entity_questions, family.entity_indirect
            asking = _Asking(questions, indirect, _names(subject), (family.descriptions,))
            return _Absent(about, gist, family.value_kind, asking, subject.names)
        asking = _ask_link(family, subject)
        return _Absent(about, gist, family.bridge_kind, asking, subject.names)

    def _one(self, about: str, asking: _Asking, again: str = "") -> Task:
        """Ask for a rule; with `again`, a search that finds it, in words that do not."""
        about, condition = self._condition(about)
        when = self._when(condition)
        question = self._ask(asking, when, self._articles(about), is_lost=bool(again))
        return self._draft(question, (about,), condition=when, again=again)

    def _condition(self, about: str) -> tuple[str, Condition | None]:
        """The rule or its exception, and when that holds."""
        condition = self._school.exceptions.get(about)
        if condition and self._rng.random() < ASKED_WITH_CONDITION:
            return about_exception(about, condition), condition
        return about, None

    def _when(self, condition: Condition | None) -> str:
        return self._rng.choice(condition.texts) if condition else ""

    def _articles(self, *abouts: str) -> list[Article]:
        return [self._school.stated[about][0] for about in abouts]

    def _ask(
        self,
        asking: _Asking,
        when: str = "",
        articles: Sequence[Article] = (),
        is_lost: bool = False,
    ) -> Question:
        """A random wording that finds the first article; the first wording if none does.

        With `is_lost` the other way round: one that does not find it.

        Often it is the wording that fits another article best, so that whoever matches words reads
        the wrong one. A question about an article in words that training never shows is itself in
        such words, so that training has no question with the same text.
        """
        is_new = not all(article.is_seen for article in articles)
        finder, gold = self._school.finder, articles[0].passage.id if articles else ""
        is_trap = self._rng.random() < self._school.trap_share
        chosen, most = None, -math.inf
        for question in self._wordings(asking, when, is_new):
            if is_new and question.is_seen:
                continue
            misleads = finder.misleads(question.query, gold)
            if is_lost and misleads < 0:
                return question
            if misleads > most and (is_trap or most < 0):
                chosen, most = question, misleads
            if not is_trap and most >= 0 and not is_lost:
                break
        assert chosen is not None
        return chosen

    def _wordings(self, asking: _Asking, when: str, is_new: bool) -> Iterator[Question]:
        """All wordings in random order, each with one choice of names, synonyms and frame."""
        rng = self._rng
        has_unseen = is_new or (self._school.has_unseen and rng.random() < UNSEEN_SHARE)
        cores = [(core, True) for core in asking.questions.of(has_unseen)]
        cores += [(core, False) for core in asking.indirect.of(has_unseen)]
        rng.shuffle(cores)
        for core, is_direct in cores:
            slots, is_seen, innermost = dict(rng.choice(asking.slots)), core.is_seen, ""
            for number, descriptions in enumerate(asking.descriptions):
                chosen = rng.choice(descriptions.of(has_unseen))
                slots["p"] = self._phrases.fill(chosen.text, rng).format(**slots)
                is_seen = is_seen and chosen.is_seen
                innermost = innermost if number else slots["p"]
            text = self._phrases.fill(core.text, rng).format(**slots)
            # Not `the room that she works in in summer`.
            is_doubled = bool(when) and text.rstrip("?").split()[-1] == when.split()[0]
            if is_doubled and not is_direct:
                continue
            frame = rng.choice(
                (self._phrases.direct if is_direct else self._phrases.indirect).of(has_unseen)
            )
            is_first = is_doubled or (". " not in text and rng.random() < 0.3)
            framed = core_in_frame(text, frame, when, is_direct, is_first)
            # Of several descriptions, the innermost is what has to be found first.
            first = framed if len(asking.descriptions) < 2 else innermost
            question = frame.text.format(i=framed, q=framed, Q=framed)
            yield Question(question, content_words(first), core.text, is_seen and frame.is_seen)

    def _draft(
        self,
        question: Question,
        abouts: tuple[str, ...],
        then: tuple[str, ...] = (),
        bridge: str = "",
        condition: str = "",
        again: str = "",
    ) -> Task:
        """The task whose evidence is what `abouts` name, one per hop; the last of them answers."""
        hops: list[tuple[Article, Statement]] = [self._school.stated[about] for about in abouts]
        last = hops[-1][1]
        return _write(
            question,
            last.value.answers,
            tuple(article.passage.id for article, _ in hops),
            question.is_seen and all(article.is_seen for article, _ in hops),
            queries=[question.query, *then],
            bridge=bridge,
            value_kind=str(last.value.kind),
            abouts=list(abouts),
            gists=[one.gist for _, one in hops],
            condition=condition,
            again=again or hops[0][1].gist,
        )


def _write(
    question: Question,
    answers: tuple[str, ...],
    gold_ids: tuple[str, ...],
    is_seen: bool,
    **meta: Any,
) -> Task:
    """The task of a question; `is_seen`: training may show it and its articles."""
    return Task(
        id="",
        split="",
        index=0,
        question=question.text,
        answers=answers,
        gold_ids=gold_ids,
        slices=(SEEN_WORDING if is_seen else UNSEEN_WORDING,),
        meta={**meta, "template": question.template},
    )


def core_in_frame(core: str, frame: Wording, when: str, is_direct: bool, is_first: bool) -> str:
    """The question as it stands in the frame, its condition behind it or, if `is_first`, before."""
    if not is_direct:
        return f"{core} {when}".rstrip()
    if when:
        core = f"{begin(when)}, {lower(core)}" if is_first else f"{core.rstrip('?')} {when}?"
    if core[-1].isalnum() and not frame.text.endswith("}"):
        core += "?"
    return lower(core) if "{q}" in frame.text else begin(core)


def lower(text: str) -> str:
    """The text as it goes on within a sentence. `I` keeps its capital; no wording begins with a
    name."""
    is_kept = text.split(maxsplit=1)[0].split("'")[0] == "I"
    return text if is_kept else text[0].lower() + text[1:]


def _ask_link(family: Family, subject: Subject) -> _Asking:
    return _Asking(family.link_questions, family.link_indirect, _names(subject))


def _ask_thing(shelf: Shelf, thing: str) -> _Asking:
    return _Asking(shelf.questions, shelf.indirect, ({"s": thing},))


def _names(subject: Subject) -> tuple[dict[str, str], ...]:
    return tuple({"s": name} for name in subject.names)
