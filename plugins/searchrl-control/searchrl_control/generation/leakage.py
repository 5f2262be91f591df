"""Whether a made-up question gives itself away, or gives a test question away.

Owns the four checks. A question that copies its passage trains an agent on word matching; one that
is near a test question, or made of a passage that answers one, trains it on the test. Pure
functions of texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from searchrl.contracts import Passage
from searchrl.retrieval import tokenize

RUN = 6
"""So many words of a passage in a row are a copy."""

NEAR = 0.7
"""A question that shares so much of its words (Jaccard) with a test question is that question."""


@dataclass(frozen=True)
class Leakage:
    """What questions must not give away.

    `test_questions` are texts; `test_passages` are ids of passages that are relevant to them.
    """

    test_questions: tuple[str, ...] = ()
    test_passages: frozenset[str] = frozenset()

    @cached_property
    def _test_words(self) -> list[frozenset[str]]:
        return [frozenset(tokenize(text)) for text in self.test_questions]

    def find_fault(self, question: str, sources: Sequence[Passage]) -> tuple[str, str]:
        """Say how a question leaks and what it quotes, or "" twice if it does not."""
        words = tokenize(question)
        if not words:
            return "it has no word", question
        for passage in sources:
            if passage.id in self.test_passages:
                return "it is made of a passage that answers a test question", passage.id
            if copied := set(_runs(words, RUN)) & set(_runs(tokenize(passage.text), RUN)):
                return f"it copies {RUN} words in a row of its passage", " ".join(min(copied))
            title = tokenize(passage.title)
            if len(title) > 1 and tuple(title) in _runs(words, len(title)):
                return "it names the title of its passage", passage.title
        own = frozenset(words)
        for text, others in zip(self.test_questions, self._test_words, strict=True):
            if others and len(own & others) / len(own | others) >= NEAR:
                return "it is nearly a test question", text
        return "", ""


def _runs(words: Sequence[str], count: int) -> list[tuple[str, ...]]:
    return [tuple(words[at : at + count]) for at in range(len(words) - count + 1)]
