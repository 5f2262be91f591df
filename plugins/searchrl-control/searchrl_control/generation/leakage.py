"""Whether a made-up question gives itself away, or gives a test question away.

Owns the four checks. A question that copies its passage trains an agent on word matching; one that
is near a test question, or made of a passage that answers one, trains it on the test. Pure
functions of texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from searchrl.contracts import Passage
from searchrl.retrieval import tokenize

RUN = 6
"""So many words of a passage in a row are a copy."""

NEAR = 0.7
"""A question that shares so much of its words (Jaccard) with a test question is that question."""


@dataclass(frozen=True, slots=True)
class Leakage:
    """What questions must not give away.

    `test_questions` are texts; `test_passages` are ids of passages that are relevant to them.
    """

    test_questions: tuple[str, ...] = ()
    test_passages: frozenset[str] = frozenset()
    _words: tuple[frozenset[str], ...] = field(init=False, default=(), repr=False)

    def __post_init__(self) -> None:
        words = tuple(frozenset(tokenize(text)) for text in self.test_questions)
        object.__setattr__(self, "_words", words)

    def find_fault(self, question: str, sources: Sequence[Passage]) -> str:
        """Say how a question leaks, or "" if it does not.

        Args:
            question: its text.
            sources: the passages that it was made of: those that it should find.
        """
        words = tokenize(question)
        if not words:
            return "it has no word"
        for passage in sources:
            if passage.id in self.test_passages:
                return f"it is made of passage {passage.id!r}, which answers a test question"
            if copied := find_copy(words, tokenize(passage.text)):
                return f"it copies {RUN} words in a row of passage {passage.id!r}: {copied!r}"
            title = tokenize(passage.title)
            if len(title) > 1 and _stands_in(title, words):
                return f"it names the title of passage {passage.id!r}: {passage.title!r}"
        return self._find_near(frozenset(words))

    def _find_near(self, words: frozenset[str]) -> str:
        for text, others in zip(self.test_questions, self._words, strict=True):
            if others and len(words & others) / len(words | others) >= NEAR:
                return f"it is nearly the test question {text[:80]!r}"
        return ""


def find_copy(words: Sequence[str], of: Sequence[str]) -> str:
    """The first `RUN` words in a row that both have; "" if there are none."""
    runs = set(_runs(of))
    return next((" ".join(run) for run in _runs(words) if run in runs), "")


def _runs(words: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return (tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1))


def _stands_in(part: Sequence[str], whole: Sequence[str]) -> bool:
    ends = range(len(whole) - len(part) + 1)
    return any(list(whole[at : at + len(part)]) == list(part) for at in ends)
