"""Reading by matching words: an answer out of the passages that were shown.

It understands nothing, and that is its use: a model that reads has to beat it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from searchrl.core.episode import Passage

UNKNOWN = "unknown"
"""The answer of a scripted policy that was not shown the answer."""

_YES_NO = re.compile(
    r"(?i)\A(?:is|are|was|were|do|does|did|has|have|had|can|could)\b|\bboth\b.*\?\Z(?<!who\?)"
)
_EITHER = re.compile(r"(?P<one>[^,?]+?),?\s+or\s+(?P<other>[^?]+?)\s*\?*\s*\Z")
_LATEST = re.compile(r"(?i)\b(?:later|latest|last|younger|youngest|newer|recent|recently|after)\b")
_WHEN = re.compile(r"(?i)\bwhen\b|\b(?:what|which) (?:year|date|day|month|century)\b")
_HOW_MANY = re.compile(r"(?i)\bhow (?:many|much|old|long|far|tall|large|big)\b|\bpopulation\b")
_YEAR = re.compile(r"\b1[0-9]{3}\b|\b20[0-9]{2}\b")
_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}} {_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}},? \d{{4}})|{_YEAR.pattern}"
)
_NUMBER = re.compile(r"\b\d[\d,.]*\b")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w[\w'’]*(?:[.-]\w[\w'’]*)*|[^\w\s]")
_JOINING = frozenset({"of", "the", "and", "de", "in"})
_ASKING = re.compile(
    r"(?i)\A(?:(?:what|which|who|whose|whom|when|where|why|how|in|on|at|is|was|the)(?![\w'’])\s*)+"
)
_SMALL = frozenset(
    "a after also although an and are as at be before both but by did do does during for from had "
    "has have he her his how however if in into is it its many most of on one or same she since "
    "some that the their them then there these they this to was were what when where which while "
    "who whom whose with".split()
)


def read_answer(question: str, passages: Sequence[Passage], last: Sequence[Passage] = ()) -> str:
    """The answer that word matching finds in `passages`, else `UNKNOWN`."""
    if not passages:
        return UNKNOWN
    if options := find_options(question):
        return _choose(question, options, passages)
    if _YES_NO.search(question):
        return _say_yes_or_no(question, passages)
    linked = _linked(question, passages)
    before = [passage for passage in linked if passage not in last]
    if last and before:
        left = words_left(question, nearest(question, before))
        later = [passage for passage in linked if passage in last]
        if (value := _read_value(question, later, left, 1)) != UNKNOWN:
            return value
    return _read_value(question, linked, content_words(question), 2)


def _linked(question: str, passages: Sequence[Passage]) -> list[Passage]:
    """The passages that have a name of the question, and those that these name by their titles."""
    names = content_words(" ".join(names_in(question)))
    if not names:
        return list(passages)
    first = [one for one in passages if names & content_words(f"{one.title} {one.text}")]
    texts = " ".join(one.text for one in first)
    return [one for one in passages if one in first or (one.title and one.title in texts)]


def find_options(question: str) -> tuple[str, str] | None:
    """The two things that a question lets one choose from: `…, A or B?`; None if it does not."""
    match = _EITHER.search(question)
    if match is None:
        return None
    one, other = match["one"].strip(), match["other"].strip()
    if match.start("one") == 0 or not one[:1].isupper():  # no comma before it: its name alone
        one = (names_in(one) or [""])[-1]
    return (one, other) if one and names_in(other) else None


def names_in(text: str, besides: str = "") -> list[str]:
    """Names in a text, found by their capitals, each once; those of words of `besides` left out.

    A name is a row of capitalised words and numbers, with small words between them: "Bank of the
    Four Rivers". In scripts without capitals no names are found.
    """
    known = set(_WORD.findall(besides.casefold()))
    names: dict[str, None] = {}
    run: list[str] = []
    joining: list[str] = []
    for word in [*_TOKEN.findall(text), "."]:
        if word[0].isupper() or (run and word[0].isdigit()):
            run += [*joining, word]
            joining = []
        elif run and word in _JOINING:
            joining.append(word)
        else:
            name = _ASKING.sub("", " ".join(run))
            if not set(_WORD.findall(name.casefold())) <= known:
                names.setdefault(name)
            run, joining = [], []
    return list(names)


def content_words(text: str) -> set[str]:
    """The words that tell something, without case."""
    return set(_WORD.findall(text.casefold())) - _SMALL


def nearest(question: str, passages: Sequence[Passage]) -> Passage:
    """The passage that shares most words with the question; the first of several."""
    words = content_words(question)
    return max(passages, key=lambda one: len(words & content_words(f"{one.title} {one.text}")))


def words_left(question: str, passage: Passage) -> list[str]:
    """The words of the question that tell something and that a passage does not have."""
    there = content_words(f"{passage.title} {passage.text}")
    return [word for word in _WORD.findall(question) if content_words(word) - there]


def about(name: str, passages: Sequence[Passage]) -> Passage | None:
    """The passage whose title is nearest to a name; None if none has most of its words."""
    words = content_words(name)
    best, most = None, 0.5
    for passage in passages:
        title = content_words(passage.title)
        share = len(words & title) / max(1, len(words | title))
        if share > most:
            best, most = passage, share
    return best


def _choose(question: str, options: tuple[str, str], passages: Sequence[Passage]) -> str:
    """One of two things, if a passage about each was shown; by their years, if they have some."""
    texts = [one.text for option in options if (one := about(option, passages)) is not None]
    if len(texts) < 2:
        return UNKNOWN
    years = [[int(year) for year in _YEAR.findall(text)] for text in texts]
    if all(years):
        is_second = years[1][0] < years[0][0]
        return options[is_second != bool(_LATEST.search(question))]
    rest = content_words(question) - content_words(" ".join(options))
    shared = [len(rest & content_words(text)) for text in texts]
    return options[shared[1] > shared[0]]


def _say_yes_or_no(question: str, passages: Sequence[Passage]) -> str:
    """Yes if the passages about two named things share what is asked, or a name of their own."""
    names = [part for name in names_in(question) for part in name.split(" and ")]
    named = [one for name in names if (one := about(name, passages)) is not None]
    if len({one.id for one in named}) < 2:
        return UNKNOWN
    one, other = named[0], named[-1]
    first, second = (set(names_in(p.text, besides=question)) for p in (one, other))
    words = content_words(question) - content_words(f"{one.title} {other.title}")
    shared = words & content_words(one.text) & content_words(other.text)
    is_same = re.search(r"(?i)\bsame\b", question)
    return "yes" if first & second or (shared and not is_same) else "no"


def _read_value(
    question: str, passages: Sequence[Passage], words: Iterable[str], least: int
) -> str:
    """A date, number or name out of the sentence that shares most of `words`, `least` or more."""
    wanted = {word.casefold() for word in words}
    best, most = UNKNOWN, least - 1
    for passage in passages:
        title = content_words(passage.title)
        for sentence in _SENTENCE.split(passage.text):
            shared = len(wanted & (content_words(sentence) | title))
            if shared > most and (value := _pick(question, sentence, passage)):
                best, most = value, shared
    return best


def _pick(question: str, sentence: str, passage: Passage) -> str:
    for asking, pattern in ((_WHEN, _DATE), (_HOW_MANY, _NUMBER)):
        if asking.search(question):
            match = pattern.search(sentence)
            return match[0] if match else ""
    # Without its dates, which a name would run into: "May 1940 in Lindry".
    names = names_in(_DATE.sub(";", sentence), besides=f"{question} {passage.title}")
    return next((one for one in names if content_words(one)), "")
