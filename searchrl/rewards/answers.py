"""Answer scoring: how a final answer is compared with the gold answers of a task.

Every comparison takes the best of several golds and scores None (no final answer) as 0.
"""

from __future__ import annotations

import difflib
import functools
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

NEAR_F1 = 0.6
"""`fuzzy`: token F1 from which an answer counts as near."""
NEAR_RATIO = 0.85
"""`fuzzy`: character similarity (`difflib` ratio) from which an answer counts as near."""

_PUNCTUATION_OUT = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
# Such as `<|im_end|>`: a model may leave them in its answer.
_CONTROL_TOKEN = re.compile(r"<\|[A-Za-z0-9_]+\|>|</?s>")

# Scripts without spaces: one token per character, but a run of Chinese numerals is one token, or
# "three days" would be found inside "thirteen days". Everything else splits at white space.
_NUMERALS = "〇零一二三四五六七八九十百千万亿两"
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_NUMERALS}]+|[{_CJK}]|[^\s{_CJK}{_NUMERALS}]+")

_VERDICTS = frozenset({"yes", "no", "noanswer"})
_NEGATIONS = frozenset(
    {"no", "not", "never", "none", "nor", "without", "cannot"} | set("不没無无未非")
)


def normalize(text: str) -> str:
    """Lower-case, delete ASCII punctuation, drop a / an / the, collapse white space (N1).

    The normalisation of SQuAD and of the Search-R1 family: `U.S.A.` -> `usa`.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION_OUT)).split())


def tokenize(normalized: str) -> list[str]:
    """Tokens of a normalised text: words, and single characters of Chinese and Japanese."""
    return _TOKEN.findall(normalized)


Compare = Callable[[str | None, Sequence[str]], float]
"""How an answer compares with accepted ones, from 0 to 1: the best counts; 0 without an answer."""


def _best_of(compare: Callable[[str, str], float]) -> Compare:
    """The comparison with several accepted answers, from that with one."""

    @functools.wraps(compare)
    def best(prediction: str | None, golds: Sequence[str]) -> float:
        if prediction is None:
            return 0.0
        # A string is a sequence of characters, and each character would count as a gold answer.
        accepted = (golds,) if isinstance(golds, str) else golds
        answer = _CONTROL_TOKEN.sub("", prediction)
        return max((compare(answer, gold) for gold in accepted), default=0.0)

    return best


@_best_of
def em(answer: str, gold: str) -> float:
    """Exact match: 1 if the answer equals any gold after normalisation, else 0.

    A gold that normalises to nothing ("The The") is compared as the stripped, lower-cased string.
    """
    target = normalize(gold)
    if not target:
        return float(answer.strip().lower() == gold.strip().lower())
    return float(normalize(answer) == target)


@_best_of
def cover_em(answer: str, gold: str) -> float:
    """Cover match: 1 if the tokens of any gold stand next to each other in the answer, else 0.

    More lenient than `em` and never comparable with it. Whole tokens only: "us" is not in
    "music". A gold that normalises to nothing never matches.
    """
    tokens, target = tokenize(normalize(answer)), tokenize(normalize(gold))
    width = len(target)
    places = range(len(tokens) - width + 1) if target else ()
    return float(any(tokens[i : i + width] == target for i in places))


@_best_of
def f1(answer: str, gold: str) -> float:
    """Token-multiset F1 with the best gold, 0 to 1.

    0 where one side is yes / no / noanswer and the other is anything else. A gold that
    normalises to nothing counts as in `em`.
    """
    left, right = normalize(answer), normalize(gold)
    if not left or not right or (left != right and {left, right} & _VERDICTS):
        return em(answer, [gold])
    left_tokens, right_tokens = tokenize(left), tokenize(right)
    overlap = (Counter(left_tokens) & Counter(right_tokens)).total()
    # 2PR/(P+R) with P = overlap/|left| and R = overlap/|right|, without its divisions by zero.
    return 2 * overlap / (len(left_tokens) + len(right_tokens))


@_best_of
def fuzzy(answer: str, gold: str) -> float:
    """1 exact (`em`), 0.5 near, 0 otherwise.

    Near: token F1 >= `NEAR_F1` or character ratio >= `NEAR_RATIO`, *and* both sides hold the same
    numbers and the same negations ("13 school days" is not near "14 school days").
    """
    if em(answer, [gold]):
        return 1.0
    left, right = normalize(answer), normalize(gold)
    if not left or not right or _decisive(left) != _decisive(right):
        return 0.0
    if f1(answer, [gold]) >= NEAR_F1:
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
