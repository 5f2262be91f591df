"""Reading by matching words: what a question asks for, and which value of an article fits best.

Owns the shapes of values as regular expressions, the words that say little, crude stems, and the
ranking of values by the words that their clauses share with a question. Knows neither tasks nor the
world that writes the articles. Called by `heuristics.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

_UNSEEN_WEIGHT = 0.7
"""The weight of a word that no shown document has; others weigh 1 / the documents that have it."""

_WEAK_SHARE = 0.2
"""The part of its weight that a weak word has."""


# The shapes of values.
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_PLACES = "House|Hall|Lodge|Wing|Building|Block|Centre|Court|Tower|Annexe"
_OPENERS = "The|A|An|Ask|At|By|Each|Every|For|From|If|In|No|On|Only|Please|See|Tell|Until|When|With"
_NO_SURNAME = rf"Fund|School|College|Academy|High|{_PLACES}|{_MONTHS}"
_NAME = rf"\b(?!(?:{_OPENERS})\b)[A-Z][a-z]+(?:-[A-Z][a-z]+)?"
_NAMED = {
    "person": rf"{_NAME} (?!(?:{_NO_SURNAME})\b){_NAME}\b(?! [A-Z][a-z])",
    "building": rf"{_NAME} (?:{_PLACES})\b",
    "form": r"\b[A-Z]\d{2}\b",
    "fund": rf"{_NAME} Fund\b",
}
"""Values that another article may be about."""
SHAPES: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(shape)
    for kind, shape in {
        "time": r"\b\d{1,2}[:.]\d{2}\b(?: ?[ap]\.?m\b)?|\b\d{1,2} ?[ap]m\b",
        "date": rf"\b\d{{1,2}} (?:{_MONTHS})\b",
        "money": r"£\d+(?:\.\d\d)?",
        "room": r"\b[A-Z]\d{3}\b",
        "extension": r"(?<![\w£:.])\d{4}(?![\w:])",
        "number": rf"(?<![\w£:.])\d{{1,3}}(?![\w:]|\.\d| ?[ap]m\b| (?:{_MONTHS})\b)",
        **_NAMED,
    }.items()
}
_ASKED = (
    (r"\b(?:which|what) (?:\w+ )?(?:form|paper|sheet)\b", "form"),
    (r"\b(?:which|what) (?:\w+ )?fund\b|\bwho pays\b", "fund"),
    (r"\b(?:which|what) (?:\w+ )?room\b|\bwhere\b.*\b(?:office|room)\b", "room"),
    (r"\b(?:which|what) (?:\w+ )?(?:building|house|hall|venue|place)\b|\bvenue\b", "building room"),
    (r"\bextension\b|\b(?:which|what) (?:phone |telephone )?(?:number|code)\b", "extension number"),
    (r"\b(?:which|what) (?:date|day)\b", "date"),
    (r"\b(?:which|what) (?:time|hour)\b|\bhow (?:late|early)\b", "time"),
    (r"\bhow (?:many|long|often|far|old|big)\b", "number"),
    (r"\bhow much\b", "money number"),
    (r"\bwh(?:o|om|ose)\b|\b(?:which|what) (?:teacher|person|member)\b", "person"),
    (r"\bwhen\b", "time date"),
    (r"\bwhere\b", "room building fund person"),
    (r"\b(?:costs?|price|fees?|fined?|charges?|deposit|pay|grant|sum)\b", "money"),
    (r"\bcode\b", "extension"),
    (r"\btime\b", "time"),
    (r"\bdate\b", "date"),
    (r"\broom\b", "room"),
    (r"\b(?:paper|form)\b", "form"),
    (r"\b(?:limit|most|maximum|number)\b", "number money"),
)
"""What a question asks for, the earliest match decides: a pattern, and the shapes of answers."""
_BRIDGES = (
    (r"\b(?:leader|supervisor|teacher|person|adult|organiser|head|staff)\b|\bwho ", "person"),
    (r"\b(?:building|venue|place|house|hall|where)\b", "building"),
    (r"\b(?:form|papers?|sheet)\b", "form"),
    (r"\bfund\b", "fund"),
)
"""How a question describes something that it does not name; words on it come after."""
_SPANS = ("minutes", "hours", "days", "weeks", "months", "years")
"""The units of a question without a unit."""

# Clauses.
_UNIT = re.compile(r"\W*([a-z]+)")
_DOCUMENT = re.compile(r"\bDoc \d+(?:\(Title: (.*?)\)|:) ([^\n<]*)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_CLAUSE_END = re.compile(
    r"[,;:] (?=(?:but|except|although|though|whereas|unless|however|yet|and (?:on|for|in))\b)|; "
)
_PAST = re.compile(
    r"\b(?:was|were|used to|formerly|previously|earlier|once|ago|old|until last|last (?:year|term)|"
    r"(?:before|until) \d{4})\b"
)
_EXCEPTION = re.compile(
    r"^(?:but|except|although|though|whereas|unless|however|yet|and (?:on|for|in))\b|"
    r"\bit (?:is|was|costs?|closes|opens|ends|starts)\b|\bthey (?:are|were|have|must|may|pay)\b"
)

# Words.
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_FUNCTION_WORDS = frozenset(
    "a about after an and any are as at be been before beside by can cannot could do does for from "
    "get got had has have having how i if in into is it its know like long many may me might most "
    "much must my need of on one or other our please shall should so some tell than that the their "
    "them then there these they this those to towards up us want was we were what when where "
    "which while who whom whose why will with within without would you your".split()
)
_WEAK_WORDS = frozenset(
    # Found everywhere in a handbook.
    "school college academy pupil student child children learner teacher parent guardian staff "
    "room time date day number every each person people year week form office building fund house "
    # Said in many ways.
    "answer arrange ask bring call charge charged close cost cover do enter fee fill find give go "
    "hand help keep lead leader leave limit listen lock look may most need obtain offer open order "
    "organise owe pay place price receive report require reserve return right run see set shut "
    "sign start stay supervise supervisor take talk turn use venue work due end begin".split()
)
"""Words that tell little of a question's matter."""
_IRREGULAR = {
    "kept": "keep", "paid": "pay", "found": "find", "lent": "lend", "lost": "lose", "left": "leave",
    "sold": "sell", "taught": "teach", "met": "meet", "held": "hold", "brought": "bring",
    "bought": "buy", "given": "give", "taken": "take", "spoken": "speak", "sent": "send",
    "chosen": "choose", "worn": "wear", "eaten": "eat", "ran": "run", "led": "lead",
    "written": "write", "stolen": "steal", "broken": "break", "loss": "lose", "sat": "sit",
}  # fmt: skip
_ENDINGS = (
    "ations", "ation", "ments", "ment", "ings", "ing", "ies", "ied", "ers", "ors", "ions", "ion",
    "er", "or", "ed", "es", "al", "ly", "s", "e", "y",
)  # fmt: skip


def stem(word: str) -> str:
    """A crude common form of a word's inflections: `supervisor`, `supervises` → `supervis`."""
    word = word.casefold().removesuffix("'s")
    word = _IRREGULAR.get(word, word)
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "sl" else word


def telling_words(text: str) -> list[str]:
    """The words of a text that may tell its matter from others, in order."""
    return [word for word in _WORD.findall(text) if word.casefold() not in _FUNCTION_WORDS]


def asked_kinds(question: str) -> tuple[str, ...]:
    """The shapes that an answer may have, most likely first."""
    found = [(re.search(pattern, question, re.IGNORECASE), kinds) for pattern, kinds in _ASKED]
    starts = [(match.start(), kinds) for match, kinds in found if match]
    return tuple(min(starts, key=lambda one: one[0])[1].split()) if starts else tuple(SHAPES)


def asked_units(question: str) -> tuple[str, ...]:
    """The words that may come after a number that answers a question."""
    units = re.findall(r"\bhow (?:many|much) (\w+)", question, re.IGNORECASE)
    return tuple(units) or _SPANS


def named_in(question: str) -> str:
    """The first name or number of a thing that a question holds, or nothing."""
    found = [match for kind in _NAMED for match in SHAPES[kind].finditer(question)]
    return min(found, key=lambda match: match.start()).group() if found else ""


def described_in(question: str, kinds: Sequence[str]) -> tuple[str, list[str]]:
    """What a question describes without naming anything, and the words that describe it.

    The description is of another shape than `kinds`, which the question asks for. Returns "" and
    no words if there is none.
    """
    if not named_in(question):
        for pattern, kind in _BRIDGES:
            match = re.search(pattern, question, re.IGNORECASE)
            if match and kind not in kinds:
                return kind, telling_words(question[match.end() :])
    return "", []


_WEAK_STEMS = frozenset(map(stem, _WEAK_WORDS))


class Document(NamedTuple):
    """One shown document."""

    title: str
    text: str


class Finding(NamedTuple):
    """A value in a document.

    `share` is the weighted share of the question's words that its clause and its document have;
    `score` also counts how near they are, and whether the clause is an exception.
    """

    value: str
    kind: str
    share: float
    score: float
    clause: str


class _Clause(NamedTuple):
    """A part of a sentence with one statement; `main` is what it is an exception to, or empty."""

    text: str
    sentence: str
    main: str

    @property
    def is_past(self) -> bool:
        return bool(_PAST.search(self.text.casefold()))


def read_documents(observation: str) -> list[Document]:
    """The documents of an observation, best first."""
    return [Document(title or "", text) for title, text in _DOCUMENT.findall(observation)]


def _clauses(text: str) -> Iterator[_Clause]:
    main = ""
    for sentence in _SENTENCE_END.split(text):
        for clause in _CLAUSE_END.split(sentence):
            is_exception = bool(main and _EXCEPTION.search(clause))
            yield _Clause(clause, sentence, main if is_exception else "")
            main = main if is_exception else clause


class Reader:
    """Ranks the values of documents by the words that they share with a question."""

    def __init__(
        self, words: Iterable[str], documents: Sequence[Document], units: Iterable[str] = ()
    ) -> None:
        self._documents = documents
        self._units = frozenset(map(stem, units))
        shown = [_stems(f"{one.title} {one.text}") for one in documents]
        self._weights = {}
        for word in map(stem, words):
            count = sum(word in one for one in shown)
            weight = 1 / count if count else _UNSEEN_WEIGHT
            self._weights[word] = weight * (_WEAK_SHARE if word in _WEAK_STEMS else 1.0)
        self._total = sum(self._weights.values()) or 1.0

    def find(self, kinds: Sequence[str], name: str = "") -> Finding | None:
        """The best value of one of `kinds`; with a name, only from documents that hold it."""
        found = [
            finding
            for document in self._documents
            if name in f"{document.title} {document.text}"
            for clause in _clauses(document.text)
            for finding in self._judge(document, clause, kinds, name)
        ]
        return max(found, key=lambda one: one.score, default=None)

    def _judge(
        self, document: Document, clause: _Clause, kinds: Sequence[str], name: str
    ) -> Iterator[Finding]:
        own = _stems(clause.text)
        near = own | _stems(clause.main)
        around, title = _stems(clause.sentence), _stems(document.title)
        everywhere = title.union(
            *(_stems(one.text) for one in self._documents if one.title == document.title)
        )
        share = score = 0.0
        for word, weight in self._weights.items():
            share += weight * (word in everywhere)
            places = ((near, 1.0), (title, 0.9), (around, 0.8), (everywhere, 0.5))
            score += weight * next((worth for place, worth in places if word in place), 0.0)
        is_named = not (own - _stems(clause.main)).isdisjoint(self._weights)
        if clause.is_past or (clause.main and not is_named):
            score -= 0.5 * self._total
        if name and name in clause.text:
            score += 0.5 * self._total
        for rank, kind in enumerate(kinds):
            for match in SHAPES[kind].finditer(clause.text):
                if match.group() == name:
                    continue
                worth = score / self._total - 0.15 * rank
                worth -= 0.005 * self._distance(clause.text, match.start())
                if unit := _UNIT.match(clause.text[match.end() :]):
                    worth += 0.2 * (stem(unit.group(1)) in self._units)
                yield Finding(match.group(), kind, share / self._total, worth, clause.text)

    def _distance(self, text: str, position: int) -> int:
        """How many words there are between a value and the nearest word of the question."""
        before, after = _WORD.findall(text[:position])[::-1], _WORD.findall(text[position:])
        found = [
            place
            for words in (before, after)
            for place, word in enumerate(words)
            if stem(word) in self._weights
        ]
        return min(found, default=20)


def _stems(text: str) -> frozenset[str]:
    return frozenset(map(stem, _WORD.findall(text)))


def inflected(words: Iterable[str], documents: Sequence[Document]) -> list[str]:
    """The words, and other forms of those that no document has; most forms match nothing."""
    shown = _stems(" ".join(f"{one.title} {one.text}" for one in documents))
    stems = [stem(word) for word in words if stem(word) not in shown | _WEAK_STEMS]
    return [
        *words,
        *(one + end for one in stems for end in ("", "e", "s", "es", "ed", "ing", "er")),
    ]
