"""Makes the tasks of a school: what is asked, what is right, and which queries find it.

A task is a pure function of (school, kind, ordinal). Owns the choice of a question's wording: it
shares at least one telling word with the article that answers it, so that a search can find the
article. Called by `env.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from searchrl.envs.regulations.names import ValueKind
from searchrl.envs.regulations.school import Article, Difficulty, School, words_of
from searchrl.envs.regulations.wordings import Family, Question, QuestionWording, Subject

LOOKUP = "lookup"
TWO_HOP = "two_hop"
NOT_REGULATED = "not_regulated"
TASK_KINDS = (LOOKUP, TWO_HOP, NOT_REGULATED)
"""Kinds of task; also the names of metrics."""

NOT_REGULATED_ANSWER = "not regulated"
"""The right answer if the handbook says nothing."""

_TELLING = 3
"""A word is telling if at most this many articles of the handbook contain it."""


class Draft(NamedTuple):
    """A task without its place in the split.

    `queries` finds the evidence hop by hop. `bridge` is what the first of two hops finds.
    `value_kind` is the domain of a plausible guess. `about` is the rule's key, and `gists` says
    what the article of each hop is about.
    """

    question: Question
    answers: tuple[str, ...]
    gold_ids: tuple[str, ...]
    queries: tuple[str, ...]
    value_kind: ValueKind
    about: str
    gists: tuple[str, ...]
    bridge: str = ""


def draft_task(school: School, kind: str, ordinal: int, difficulty: Difficulty) -> Draft:
    """The `ordinal`-th task of `kind` at `school`; wraps around when a school has no more."""
    rng = Random(f"{school.key}/{kind}/{ordinal}")
    # The order of subjects must not depend on the ordinal, or tasks would repeat.
    order = Random(f"{school.key}/{kind}")
    writer = _Writer(school, difficulty, rng)
    if kind == TWO_HOP:
        return writer.two_hop(_pick(range(len(school.links)), ordinal, order))
    if kind == NOT_REGULATED:
        return writer.not_regulated(ordinal, order)
    number = _pick(range(len(school.rules) + 2 * len(school.links)), ordinal, order)
    return writer.lookup(number)


def _pick(items: Sequence[int], ordinal: int, order: Random) -> int:
    return order.sample(items, len(items))[ordinal % len(items)]


class _Absent(NamedTuple):
    """Something the handbook does not mention, and how to ask for it."""

    about: str
    gist: str
    kind: ValueKind
    wordings: tuple[QuestionWording, ...]
    names: tuple[str, ...]

    def questions(self) -> list[Question]:
        return [wording.fill(name) for wording in self.wordings for name in self.names]


class _Writer:
    """Writes tasks about one school."""

    def __init__(self, school: School, difficulty: Difficulty, rng: Random) -> None:
        self._school = school
        self._difficulty = difficulty
        self._rng = rng

    def lookup(self, number: int) -> Draft:
        """Ask for a rule, for what a link names, or for the value of a named entity."""
        rules, links = self._school.rules, self._school.links
        if number < len(rules):
            topic, article = rules[number]
            question = self._ask(topic.questions, ("",), article)
        elif number < len(rules) + len(links):
            link = links[number - len(rules)]
            article = link.link
            question = self._ask(link.family.link_questions, link.subject.names, article)
        else:
            link = links[number - len(rules) - len(links)]
            article = link.entity_article
            question = self._ask(link.family.entity_questions, (link.entity,), article)
        return _draft(question, [article])

    def two_hop(self, number: int) -> Draft:
        """Ask about an entity without its name: the first search has to find the name."""
        link = self._school.links[number]
        question = self._ask(link.family.hop_questions, link.subject.names, link.link)
        then = link.family.entity_query(link.entity)
        return _draft(question, [link.link, link.entity_article], (then,), link.entity)

    def not_regulated(self, ordinal: int, order: Random) -> Draft:
        """Ask for a rule, or for a chain's subject, that the handbook does not mention.

        Half of each. First come those for which a search finds passages that do not answer: an
        agent must read that the handbook is silent, not conclude it from an empty result.
        """
        absent: list[_Absent] = [
            _Absent(topic.key, topic.gist, topic.kind, topic.questions, ("",))
            for topic in self._school.absent_topics
        ]
        if ordinal % 2:
            absent = [self._absent_subject(*item) for item in self._school.absent_subjects]
        order.shuffle(absent)
        absent.sort(key=lambda item: not any(map(self._finds_something, item.questions())))
        chosen = absent[ordinal // 2 % len(absent)]
        questions = chosen.questions()
        self._rng.shuffle(questions)
        question = next(filter(self._finds_something, questions), questions[0])
        return Draft(
            question=question,
            answers=(NOT_REGULATED_ANSWER,),
            gold_ids=(),
            queries=(question.query,),
            value_kind=chosen.kind,
            about=chosen.about,
            gists=(chosen.gist,),
        )

    def _absent_subject(self, family: Family, subject: Subject) -> _Absent:
        about, gist = f"{family.key}:{subject.key}", family.link_gist(subject)
        names = subject.names
        if self._difficulty is Difficulty.HARD and self._rng.random() < 0.5:
            return _Absent(about, gist, family.value_kind, family.hop_questions, names)
        return _Absent(about, gist, family.bridge_kind, family.link_questions, names)

    def _finds_something(self, question: Question) -> bool:
        return not words_of(question.query).isdisjoint(self._school.num_articles_with)

    def _ask(
        self, wordings: Sequence[QuestionWording], names: Sequence[str], article: Article
    ) -> Question:
        """A random wording among those that share enough telling words with the article."""
        candidates = [wording.fill(name) for wording in wordings for name in names]
        self._rng.shuffle(candidates)
        wanted = 2 if self._difficulty is Difficulty.EASY else 1
        words = words_of(f"{article.passage.title} {article.passage.text}")
        telling = {word for word in words if self._school.num_articles_with[word] <= _TELLING}
        shared = [len(words_of(question.query) & telling) for question in candidates]
        for question, count in zip(candidates, shared, strict=True):
            if count >= wanted:
                return question
        return candidates[shared.index(max(shared))]


def _draft(
    question: Question, articles: Sequence[Article], then: tuple[str, ...] = (), bridge: str = ""
) -> Draft:
    """The task whose evidence is `articles`, one per hop; the last of them answers."""
    last = articles[-1]
    # A form may be named by its number alone.
    short = (last.value.removeprefix("form "),) if last.kind is ValueKind.FORM else ()
    return Draft(
        question=question,
        answers=(*short, last.value),
        gold_ids=tuple(article.passage.id for article in articles),
        queries=(question.query, *then),
        value_kind=last.kind,
        about=last.about,
        gists=tuple(article.gist for article in articles),
        bridge=bridge,
    )
