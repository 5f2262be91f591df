"""Answer scoring: how a final answer is compared with the gold answers of a task.

Owns the three normalisation dialects and the four comparisons `em`, `cover_em`, `f1` and `fuzzy`.
Every comparison takes the best of several golds and scores None (no final answer) as 0. Finding
the final answer is the protocol's work. Standard library only.
"""

from __future__ import annotations

import difflib
import functools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

Normalize = Callable[[str], str]
"""A normalisation dialect, one of `DIALECTS`."""

NEAR_F1 = 0.6
"""Token F1 from which an answer is near, for `fuzzy`."""
NEAR_RATIO = 0.85
"""Character similarity (`difflib` ratio) from which an answer is near, for `fuzzy`."""

_PUNCTUATION_OUT = str.maketrans("", "", string.punctuation)
_PUNCTUATION_TO_SPACE = str.maketrans(dict.fromkeys(string.punctuation, " "))
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
# Such as `<|im_end|>`: a model may leave them in its answer.
_CONTROL_TOKEN = re.compile(r"<\|[A-Za-z0-9_]+\|>|</?s>")

# Scripts without spaces: one token per character, but a run of Chinese numerals is one token, or
# "three days" would be found inside "thirteen days". Everything else splits at white space.
_NUMERALS = "〇零一二三四五六七八九十百千万亿两"
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_NUMERALS}]+|[{_CJK}]|[^\s{_CJK}{_NUMERALS}]+")

_DASH = re.compile(r"[\u2010-\u2015\u2212](?=\.?\d)")
# 1,000 and 1,00,000 and 1'000; not 3,5.
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:[,'’]\d{2,3})*[,'’]\d{3}(?!\d|,\d)")
_MARKUP = re.compile(r"(?<!\w)([*_`$]{1,3})(?=\S)(.+?)\1(?!\w)")
_SPACED = re.compile(r"(?<=\w)\s+([<>=+^]+)\s+(?=\w)|(?<=\d)\s+(?=%)")
# Punctuation that N3 deletes, except the first group.
_LOOSE = re.compile(
    r"""((?<=\d)[.,:/*-](?=\d)           # 3.5  3,5  16:45  1/2  2*3  10-12
       | (?<=\de)-(?=\d)                 # 1e-5
       | (?<![\w.])(?:-\.?|\.)(?=\d)     # -5  -.5  .5
       | (?<!\w)-(?=[^\W\d]\b)           # -x
       | (?<=(?<!\w)\w)-(?!\w) | (?<=(?<!\w)\w\w)-(?!\w)    # A-  AB-
       | (?<=(?<!\w)[^\W\d])\*(?![\w*])  # A*
       | (?<=[\w+#)\]])[+\#] | \+(?!\.?\d)    # C++  F#  x+5; not +5
       | (?<=\d)% | !(?==)               # 50%  x!=5
      ) | ["'(),;?@\[\]_{}\\&`!.:/*\#%+-]""",
    re.VERBOSE,
)
# N3 equals N1 for a text without any of these.
_TELLING = re.compile(r"[^\w\s]|_|\b(?:a|an|the)\b", re.IGNORECASE)
_NUMBER = re.compile(r"(?:(?<![\w.])[-+]?\.?)?\d+(?:(?:[^\w\s]|e[-+]?)\d+)*")

_VERDICTS = frozenset({"yes", "no", "noanswer"})
_NEGATIONS = frozenset(
    {"no", "not", "never", "none", "nor", "without", "cannot"} | set("不没無无未非")
)


def normalize_n1(text: str) -> str:
    """Dialect N1, the default: ASCII punctuation is deleted (`U.S.A.` -> `usa`).

    Lower-case, delete ASCII punctuation, drop the whole words a / an / the, collapse white space:
    the normalisation of SQuAD and of the Search-R1 family. Unicode text is composed (NFC) first.
    """
    return _drop_articles(unicodedata.normalize("NFC", text).lower().translate(_PUNCTUATION_OUT))


def normalize_n2(text: str) -> str:
    """Dialect N2: ASCII punctuation becomes a space (`U.S.A.` -> `u s`, the `a` is an article).

    Otherwise as N1. The dialect of R1-Searcher. Do not compare figures of the two dialects.
    """
    composed = unicodedata.normalize("NFC", text)
    return _drop_articles(composed.lower().translate(_PUNCTUATION_TO_SPACE))


def normalize_n3(text: str) -> str:
    """Dialect N3: N1 that keeps what tells answers apart: 3.5, -5, 1/2, x<5, C++, 50%, vitamin A.

    Signs, points and operators of numbers, ASCII symbols, and an `a` that no word follows stay;
    grouping commas (1,000) and marks around a text go: (A), A. and **A** are `a`.
    """
    if not _TELLING.search(text):
        return normalize_n1(text)
    while (kept := _normalize_n3_once(text)) != text:
        text = kept
    return text


def _normalize_n3_once(text: str) -> str:
    text = _MARKUP.sub(r"\2", _plain_numbers(unicodedata.normalize("NFC", text).lower()))
    words = _LOOSE.sub(lambda match: match[1] or "", _SPACED.sub(r"\1", text)).split()
    # An article stands before a word: not at the end, and not in "A or B".
    kept = [
        word
        for word, after in zip(words, [*words[1:], ""], strict=False)
        if word not in ("a", "an", "the")
        or (word == "a" and (not after[:1].isalnum() or after in ("and", "or", "to", "vs")))
    ]
    return " ".join(kept or words)


DIALECTS: Mapping[str, Normalize] = MappingProxyType(
    {"N1": normalize_n1, "N2": normalize_n2, "N3": normalize_n3}
)
"""The dialects, by the values of the key `normalization`."""


def _plain_numbers(text: str) -> str:
    """A text with one minus sign for all, and without marks between thousands."""
    return _GROUPED.sub(lambda match: re.sub("[,'’]", "", match[0]), _DASH.sub("-", text))


def find_numbers(text: str) -> Counter[str]:
    """The numbers of a text as they are written: sign, point, fraction, exponent; digits as 0-9."""
    plain = _plain_numbers(unicodedata.normalize("NFC", text).lower())
    plain = "".join(str(unicodedata.decimal(one)) if one.isdecimal() else one for one in plain)
    return Counter(number.lstrip("+") for number in _NUMBER.findall(plain))


def find_blurred(tasks: Iterable[Sequence[str]]) -> dict[str, str]:
    """Gold answers that N1 confuses with a plausible wrong one, each with the wrong one.

    A wrong one is an answer of another task, or the gold answer without its sign, decimal point,
    symbol or single letter.
    """
    golds = [golds for golds in tasks if golds]
    strict = {gold: normalize_n3(gold) for answers in golds for gold in answers}
    alike: dict[str, set[str]] = {}
    for gold, text in strict.items():
        loose = normalize_n1(gold)
        alike.setdefault(loose, {normalize_n3(loose)}).add(text)
    blurred = {}
    for answers in golds:
        right = {strict[gold] for gold in answers}
        for gold in answers:
            # Texts that N1 empties are compared in another way.
            if (loose := normalize_n1(gold)) and (wrong := alike[loose] - right):
                blurred[gold] = min(wrong)
    return blurred


def _drop_articles(text: str) -> str:
    # What is left may be what Unicode writes as one character.
    return unicodedata.normalize("NFC", " ".join(_ARTICLES.sub(" ", text).split()))


def tokenize(normalized: str) -> list[str]:
    """Tokens of a normalised text: words, and single characters of Chinese and Japanese."""
    return _TOKEN.findall(normalized)


class Compare(Protocol):
    """A comparison of an answer with accepted ones; the best one counts."""

    def __call__(
        self, prediction: str | None, golds: Sequence[str], normalize: Normalize | str = "N1"
    ) -> float:
        """From 0 to 1; 0 without an answer. `normalize` is a dialect or the name of one."""


def _best_of(compare: Callable[[str, str, Normalize], float]) -> Compare:
    """Make a comparison with several accepted answers of one with a single answer."""

    @functools.wraps(compare)
    def best(
        prediction: str | None, golds: Sequence[str], normalize: Normalize | str = "N1"
    ) -> float:
        if prediction is None:
            return 0.0
        rule = DIALECTS[normalize] if isinstance(normalize, str) else normalize
        # A string is a sequence of characters, and each character would count as a gold answer.
        accepted = (golds,) if isinstance(golds, str) else golds
        answer = _CONTROL_TOKEN.sub("", prediction)
        return max((compare(answer, gold, rule) for gold in accepted), default=0.0)

    return best


@_best_of
def em(answer: str, gold: str, normalize: Normalize) -> float:
    """Exact match: 1 if the answer equals any gold after normalisation, else 0.

    A gold that normalises to nothing ("The The", "A") is compared as the lower-cased string without
    the punctuation around it: A. and (A) are A.
    """
    target = normalize(gold)
    return float(normalize(answer) == target if target else _bare(answer) == _bare(gold))


def _bare(text: str) -> str:
    text = unicodedata.normalize("NFC", text).strip().lower()
    return text.strip(string.punctuation + string.whitespace) or text


@_best_of
def cover_em(answer: str, gold: str, normalize: Normalize) -> float:
    """Cover match: 1 if the tokens of any gold stand next to each other in the answer, else 0.

    More lenient than `em` and never comparable with it. Whole tokens only: "us" is not in
    "music". A gold that normalises to nothing never matches.
    """
    tokens, target = tokenize(normalize(answer)), tokenize(normalize(gold))
    width = len(target)
    places = range(len(tokens) - width + 1) if target else ()
    return float(any(tokens[i : i + width] == target for i in places))


@_best_of
def f1(answer: str, gold: str, normalize: Normalize) -> float:
    """Token-multiset F1 with the best gold, 0 to 1.

    0 where one side is yes / no / noanswer and the other is anything else. A gold that
    normalises to nothing counts as in `em`.
    """
    left, right = normalize(answer), normalize(gold)
    if not left or not right or (left != right and {left, right} & _VERDICTS):
        return em(answer, [gold], normalize)
    left_tokens, right_tokens = tokenize(left), tokenize(right)
    overlap = (Counter(left_tokens) & Counter(right_tokens)).total()
    # 2PR/(P+R) with P = overlap/|left| and R = overlap/|right|, without its divisions by zero.
    return 2 * overlap / (len(left_tokens) + len(right_tokens))


@_best_of
def fuzzy(answer: str, gold: str, normalize: Normalize) -> float:
    """1 exact (`em`), 0.5 near, 0 otherwise.

    Near: token F1 >= `NEAR_F1` or character ratio >= `NEAR_RATIO`, *and* both sides hold the same
    numbers and the same negations ("13 school days" is not near "14 school days"). Other numbers
    are 0 even where the dialect drops the difference: 3.5 and 35, -5 and 5.
    """
    if find_numbers(answer) != find_numbers(gold):
        return 0.0
    if em(answer, [gold], normalize):
        return 1.0
    left, right = normalize(answer), normalize(gold)
    if not left or not right or _decisive(left) != _decisive(right):
        return 0.0
    if f1(answer, [gold], normalize) >= NEAR_F1:
        return 0.5
    matcher = difflib.SequenceMatcher(None, right, left, autojunk=False)
    # The cheap bound first: it avoids the quadratic comparison with a very long answer.
    is_near = matcher.real_quick_ratio() >= NEAR_RATIO and matcher.ratio() >= NEAR_RATIO
    return 0.5 if is_near else 0.0


def _decisive(normalized: str) -> Counter[str]:
    """The tokens that change the meaning of an answer: numbers and negations."""
    return Counter(
        token
        for token in tokenize(normalized)
        if token in _NEGATIONS or any(char.isnumeric() for char in token)
    )
