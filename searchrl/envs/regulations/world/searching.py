"""Queries: the words of a question that tell something, and the articles that they find."""

from __future__ import annotations

import re
from functools import lru_cache

from searchrl.core.episode import Passage
from searchrl.retrieval.bm25 import BM25Retriever

_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")

NUM_SHOWN = 3
"""Results of a search that questions are written for."""

FUNCTION_WORDS = frozenset(
    # Grammar.
    "a about after all am an and any are as at be been before being but by can could did do does "
    "each every for from had has have he her his how i if in into is it its many may me more most "
    "much must my need needs no not of off on once one or our out over own shall she should so "
    "some than that the their them then there these they this those to too until up us was we "
    "were what when where which while who whom whose why will with within without would you your "
    # Politeness, and the matter of every question.
    "ask called excuse find forgot handbook hello here know let like look looked might new people "
    "please question quick regulations rule rules say says school college academy sorry tell "
    "thank thanks thing want wonder "
    "children child learner learners pupil pupils student students".split()
)
"""Words that a query leaves out."""


def content_words(question: str) -> str:
    """A query made of the question's words: all from the first to the last that tells something.

    The words between stay in, so that a query is a piece of the question as it stands: a small
    model copies one without a fault, and a word search hardly minds them.
    """
    words = _WORD.finditer(question)
    telling = [word for word in words if word.group().casefold() not in FUNCTION_WORDS]
    return question[telling[0].start() : telling[-1].end()] if telling else question


class Finder:
    """A word search in one handbook."""

    def __init__(self, passages: tuple[Passage, ...]) -> None:
        self._search = BM25Retriever(passages)

    def finds(self, query: str, passage_id: str) -> bool:
        """True if the article is among the first results of the query."""
        return self.misleads(query, passage_id) >= 0

    def misleads(self, query: str, passage_id: str = "") -> float:
        """The best other score of the query over that of the article (none: over 1).

        Among `NUM_SHOWN` results; -1 if the article is not among them, or if there are none.
        """
        scores = {p.id: p.score for p in self._search.search([query], NUM_SHOWN)[0]}
        if not scores or (passage_id and passage_id not in scores):
            return -1.0
        score = scores.pop(passage_id, 1.0)
        return max(scores.values(), default=0.0) / max(score, 1e-9)


@lru_cache(maxsize=4)
def make_finder(passages: tuple[Passage, ...]) -> Finder:
    """The finder of a handbook. Larger than the handbook, so only those in use are kept."""
    return Finder(passages)
