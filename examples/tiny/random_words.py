"""Drills and noise: random words, so that a small model copies what it never saw.

Owns what only the cold start of the tiny model asks for. Drills: a question of common words of
other fields, invented names, foreign words and numbers, and a few articles of such words, of which
one answers, or none. Noise: words of a school's articles and questions replaced by such words, so
that a sentence has to be read and copied as it stands, not as its like. All are pure functions. The
words are data (`drills.json`). `cold_start.py` makes an environment of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple

from pydantic import Field, with_config

from searchrl.core.episode import Passage
from searchrl.envs.regulations.world.names import Value, ValueKind, draw_value, invent_name
from searchrl.envs.regulations.world.prose import Article, Statement, begin
from searchrl.envs.word_lists import EXACT, load_word_list

_PLAIN_WORD = re.compile(r"(?<![\w£:@-])[a-z]{3,}(?![\w:-])")
_KEPT = frozenset(
    "room form extension code days pages minutes points hours lessons fund the for but and until "
    "last year used was had been".split()
)
"""Words that tell what a value is, or that it no longer holds."""

_NUM_ARTICLES = 6
"""The first answers; the second and the third share words with the question."""
_SILENT_SHARE = 0.2
_INVENTED_SHARE = 0.15
"""How often a common word is replaced by an invented one."""

_Texts = Annotated[tuple[str, ...], Field(min_length=4)]


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class _Shape:
    """What asks for one kind of value, and what states it.

    Slots: `{n}` and `{m}` names, `{a}`, `{b}` and `{c}` words, `{v}` the value.
    """

    noun: str
    kind: ValueKind
    questions: _Texts
    facts: _Texts


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class _Lists:
    """The content of `drills.json`."""

    words: _Texts
    shapes: tuple[_Shape, ...]


class Drill(NamedTuple):
    """A question with the articles that can be searched for it; `found` is None if none answers."""

    question: str
    gist: str
    kind: ValueKind
    articles: tuple[Article, ...]
    found: Statement | None

    @property
    def gold_ids(self) -> tuple[str, ...]:
        """The article that answers."""
        return tuple(a.passage.id for a in self.articles if self.found in a.statements)


@cache
def _lists() -> _Lists:
    return load_word_list(_Lists, Path(__file__).with_name("drills.json"))


@lru_cache(maxsize=256)
def make_drill(world_seed: int, split: str, index: int) -> Drill:
    """Drill `index` of `split`."""
    rng = Random(f"drill/{world_seed}/{split}/{index}")
    shape = rng.choice(_lists().shapes)
    names = [_name(rng) for _ in range(_NUM_ARTICLES + 1)]
    words = [{slot: _word(rng) for slot in "abc"} for _ in range(3)]
    asked = {"n": names[0], "m": names[1], **words[0]}
    articles = []
    for number, name in enumerate(names[:_NUM_ARTICLES]):
        # Others share words with the question, and only its name tells them apart.
        slots = (
            asked | {"n": name}
            if number < 3
            else {"n": name, "m": names[-1], **words[1 + number % 2]}
        )
        other = shape if number < 2 else rng.choice(_lists().shapes)
        articles.append(_write(other, slots, rng))
    found: Statement | None = articles[0].statements[0]
    if rng.random() < _SILENT_SHARE:
        found = None
        # Half of these lose the articles that share words with the question, too.
        del articles[: 1 if rng.random() < 0.5 else 3]
    rng.shuffle(articles)
    numbered = tuple(
        one._replace(passage=replace(one.passage, id=f"art-{number:02d}"))
        for number, one in enumerate(articles, start=1)
    )
    question = begin(rng.choice(shape.questions).format(**asked))
    return Drill(question, f"{shape.noun} of {names[0]}", shape.kind, numbered, found)


def replace_words(article: Article, rng: Random, share: float) -> Article:
    """The article with a share of its plain words replaced, the same in its statements' clauses.

    Values, names, conditions and what tells the kind of a value stay, so its statements still hold.
    """
    text = article.passage.text
    said = " ".join(f"{one.gist} {one.condition}" for one in article.statements)
    kept = _KEPT | set(re.findall(r"\w+", said))
    pieces: list[str] = []
    starts: dict[int, int] = {}
    length = end = 0
    for word in _PLAIN_WORD.finditer(text):
        if word.group() in kept or rng.random() >= share:
            continue
        gap, new = text[end : word.start()], _word(rng)
        pieces += [gap, new]
        length += len(gap) + len(new)
        end = word.end()
        starts[word.end()] = length - word.end()
    changed = "".join(pieces) + text[end:]

    def moved(place: int) -> int:
        return place + next((by for at, by in reversed(starts.items()) if at <= place), 0)

    statements = []
    for one in article.statements:
        start = text.index(one.clause)
        clause = changed[moved(start) : moved(start + len(one.clause))]
        statements.append(one._replace(clause=clause))
    return article._replace(
        passage=replace(article.passage, text=changed), statements=tuple(statements)
    )


def insert_words(question: str, rng: Random) -> str:
    """The question with one or two random words between its words."""
    words = question.split()
    for _ in range(rng.choice((1, 2))):
        words.insert(rng.randint(1, max(1, len(words) - 1)), _word(rng))
    return " ".join(words)


def _write(shape: _Shape, slots: dict[str, str], rng: Random) -> Article:
    value = Value(shape.kind, draw_value(shape.kind, rng))
    clause = begin(rng.choice(shape.facts).format(v=value.text, **slots))
    gist = f"{shape.noun} of {slots['n']}"
    text = f"{clause}. {begin(_word(rng))} {_word(rng)} {_word(rng)} {_word(rng)}."
    title = begin(rng.choice((slots["n"], slots["a"], f"{slots['a']} {slots['b']}")))
    return Article(Passage("", text, title), (Statement(gist, gist, value, clause),))


def _word(rng: Random) -> str:
    if rng.random() < _INVENTED_SHARE:
        return invent_name(rng).lower()
    return rng.choice(_lists().words)


def _name(rng: Random) -> str:
    """One invented word, two, or one with a number."""
    return " ".join(invent_name(rng) for _ in range(rng.choice((1, 1, 2))))
