"""Actions on the list that is there: the set `published`.

Owns the state of such an episode and what every action makes of it. Actions add up: Narrow and
Broad change the query that was searched last. Pure functions of the question and the actions
before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from searchrl_control.environment.actions import Action
from searchrl_control.reformulate.contract import Asked, Reformulator, Rewrite
from searchrl_control.searchers.question import Question
from searchrl_control.searchers.ranking import Found, points

SHOWN = 10
"""Passages that a reformulator is shown, at most."""


class ListState(NamedTuple):
    """The list that is there, the terms and the text that were searched, and the list before it."""

    weights: Mapping[str, float]
    text: str
    found: Found
    before: Found | None = None


class Lists:
    """What the actions of `published` do.

    Args:
        reformulator: of Narrow and Broad.
    """

    def __init__(self, reformulator: Reformulator) -> None:
        self._reformulator = reformulator

    def begin(self, question: Question) -> ListState:
        """After Search: the single pass."""
        weights = question.library.terms.weights_of(question.query)
        # As points, like every list after it: feedback weighs passages by them.
        return ListState(weights, question.text, points(question.words))

    def play(self, question: Question, state: ListState, action: Action) -> ListState:
        """The state after an action; Search begins again."""
        if action is Action.SEARCH:
            return self.begin(question)
        passages = tuple(
            replace(question.library.passages[place], score=score)
            for place, score in self.top(state, SHOWN)
        )
        asked = Asked(question.text, state.weights, passages)
        is_narrow = action is Action.NARROW
        ask = self._reformulator.narrow if is_narrow else self._reformulator.broaden
        terms, rewrite = question.library.terms, ask(asked)
        query = terms.query_of(rewrite.weights) if rewrite.weights else terms.query(rewrite.text)
        if not query:  # words that the collection does not know change nothing
            query, rewrite = terms.query_of(state.weights), Rewrite(state.text)
        found = points(question.search_words(query))
        return ListState(terms.weights_of(query), rewrite.text, found, state.found)

    def top(self, state: ListState, k: int) -> list[tuple[int, float]]:
        """The places of the first k passages with their points, best first."""
        places = state.found.first(k)
        return list(zip(places.tolist(), state.found.scores_N[places].tolist(), strict=True))
