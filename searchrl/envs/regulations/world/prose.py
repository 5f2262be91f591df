"""Articles: rules put into sentences, with exceptions, earlier values and remarks beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import NamedTuple

from searchrl.core.episode import Passage
from searchrl.envs.regulations.world.names import Value, ValueKind
from searchrl.envs.regulations.world.wordings import (
    Condition,
    Phrases,
    Wording,
    Wordings,
)

MAX_WORDS = 30
"""Remarks are left out where an article would have more words."""

MIN_WORDS = 12

_CONDITION_WORDS = 9
"""Room for a condition and the words around it."""

_YEARS = range(2012, 2025)


class Status(StrEnum):
    """The state of a rule in an article."""

    CURRENT = "current"
    REPLACED = "replaced"
    """Another article, which is `NEW`, says otherwise, and that holds."""
    NEW = "new"
    """It holds, and says that it replaces an earlier rule."""


class Statement(NamedTuple):
    """One rule as an article states it.

    `about` is the rule's key, unique within a handbook; `gist` says the same in a reader's words.
    `clause` is the part of the article's text that states it. `condition` is the phrase for when or
    whom an exception holds, empty for the rule itself.
    """

    about: str
    gist: str
    value: Value
    clause: str
    condition: str = ""
    status: Status = Status.CURRENT


class Article(NamedTuple):
    """A passage and what it states, in order; `is_seen`: all its wordings occur in training."""

    passage: Passage
    statements: tuple[Statement, ...]
    is_seen: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule before it is put into words; `slots` fill its wordings beside the value.

    `exemption` is when or for whom another value holds, and that value. `other` is a value of
    something else that the article mentions in passing. `replaced` is the value in another article,
    which this one says is void.
    """

    about: str
    gist: str
    value: Value
    wordings: Wordings
    slots: dict[str, str]
    past: Value | None = None
    exemption: tuple[Condition, Value] | None = None
    other: Value | None = None
    replaced: Value | None = None


def begin(text: str) -> str:
    """The text as the start of a sentence."""
    return text[:1].upper() + text[1:]


def about_exception(about: str, condition: Condition) -> str:
    """The key of a rule's exception."""
    return f"{about}@{condition.key}"


def condition_of(about: str) -> str:
    """The condition that a rule's key names; empty if it is not an exception."""
    return about.partition("@")[2]


class Composer:
    """Writes the articles of one school, with some wordings of each rule (None: all).

    With `has_unseen`, wordings of the test split may be used.
    """

    def __init__(
        self, phrases: Phrases, rng: Random, has_unseen: bool, num_wordings: int | None = None
    ) -> None:
        self._phrases = phrases
        self._rng = rng
        self._has_unseen = has_unseen
        self._num_wordings = num_wordings

    def article(
        self, titles: Sequence[str], rules: Sequence[Rule], remarks: Sequence[str], limit: int
    ) -> Article:
        """Rules one after the other, then remarks until the article has at least `MIN_WORDS`.

        The slots of titles and remarks are those of the first rule. `limit` is the most words that
        an article may have; 0: no limit and no remarks.
        """
        rng = self._rng
        slots = rules[0].slots
        title = begin(self._fill(rng.choice(titles), slots))
        text, statements, is_seen = self._rules(rules)
        while limit and len(text.split()) > limit:
            text, statements, is_seen = self._rules(rules)
        beside = [*rng.sample(remarks, 2), *rng.sample(self._phrases.asides, 2)]
        rng.shuffle(beside)
        for remark in beside if limit else ():
            is_long_enough = len(text.split()) >= MIN_WORDS
            if is_long_enough and rng.random() < 0.6:
                break
            longer = f"{text} {begin(self._fill(remark, slots))}"
            if len(longer.split()) <= limit or not is_long_enough:
                text = longer
        return Article(Passage("", text, title), tuple(statements), is_seen)

    def _rules(self, rules: Sequence[Rule]) -> tuple[str, list[Statement], bool]:
        """The rules one after the other: text, statements, and True if training may show it."""
        sentences, statements, is_seen = [], [], True
        for rule in rules:
            text, stated, seen = self._state(rule)
            sentences.append(text)
            statements += stated
            is_seen = is_seen and seen
        return " ".join(sentences), statements, is_seen

    def remark_article(
        self, titles: Sequence[str], remarks: Sequence[str], slots: dict[str, str]
    ) -> Article:
        """An article that talks about a matter and states no rule."""
        title = begin(self._fill(self._rng.choice(titles), slots))
        chosen = self._rng.sample(remarks, min(2, len(remarks)))
        texts = [begin(self._fill(remark, slots)) for remark in chosen]
        text = texts[0] if len(texts[0].split()) >= MIN_WORDS + 4 else " ".join(texts)
        return Article(Passage("", text, title), ())

    def _state(self, rule: Rule) -> tuple[str, list[Statement], bool]:
        """The rule's sentences, their statements, and True if training may show all wordings."""
        wording = self._choose(rule.wordings, self._num_wordings)
        main = self._fill(wording.text, {**rule.slots, "v": rule.value.text})
        frame, is_seen = "{Main}.", wording.is_seen
        slots = {"main": main, "Main": begin(main)}
        stated = []
        if rule.exemption is not None:
            condition, value = rule.exemption
            again = self._choose(rule.wordings)
            alt = self._fill(again.text, {**rule.slots, "v": value.text})
            is_short = len(f"{main} {alt}".split()) <= MAX_WORDS - _CONDITION_WORDS
            chosen = self._choose(self._phrases.exceptions)
            while "{alt}" in chosen.text and not is_short:
                chosen = self._choose(self._phrases.exceptions)
            frame, is_seen = chosen.text, is_seen and chosen.is_seen
            other = f"it is {value.text}"
            if "{alt}" in frame:
                other, is_seen = alt, is_seen and again.is_seen
            when = self._rng.choice(condition.texts)
            slots |= {"c": when, "C": begin(when), "w": value.text, "alt": alt}
            clause = f"{begin(when) if '{C}' in frame else when} {other}"
            about = about_exception(rule.about, condition)
            stated = [Statement(about, rule.gist, value, clause, when)]
        elif rule.past is not None:
            chosen = self._choose(self._phrases.past)
            frame, is_seen = chosen.text, is_seen and chosen.is_seen
            slots |= {"w": rule.past.text, "y": str(self._rng.choice(_YEARS))}
        elif rule.replaced is not None:
            chosen = self._choose(self._phrases.amendments)
            frame, is_seen = chosen.text, is_seen and chosen.is_seen
        clause = slots["Main" if "{Main}" in frame else "main"]
        status = Status.CURRENT if rule.replaced is None else Status.NEW
        stated.insert(0, Statement(rule.about, rule.gist, rule.value, clause, status=status))
        text = frame.format(**slots)
        if rule.other is not None:
            passing = self._rng.choice(self._phrases.other_values[rule.value.kind])
            # What is in passing counts something else: `69 ducks`, not `69 days ducks`.
            is_count = rule.other.kind is ValueKind.NUMBER
            passing = begin(passing.format(v=rule.other.bare if is_count else rule.other.text))
            text = f"{passing} {text}" if self._rng.random() < 0.5 else f"{text} {passing}"
        return text, stated, is_seen

    def _choose(self, wordings: Wordings, first: int | None = None) -> Wording:
        return self._rng.choice(wordings.of(self._has_unseen)[:first])

    def _fill(self, text: str, slots: dict[str, str]) -> str:
        return self._phrases.fill(text, self._rng).format(**slots)
