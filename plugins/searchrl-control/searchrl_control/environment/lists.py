"""Actions on the list that is there: the set `published`.

Owns the state of such an episode. Actions add up: Narrow and Broad change the query that was
searched last.
"""

from __future__ import annotations

from typing import NamedTuple

from searchrl_control.environment.actions import Action
from searchrl_control.environment.features import (
    LIST_FEATURES,
    QUERY_FEATURES,
    Features,
    query_features,
)
from searchrl_control.environment.games import Game, Top
from searchrl_control.searchers.ranking import Found, points
from searchrl_control.searchers.terms import Query


class ListState(NamedTuple):
    """The list that is there, the terms and the text that were searched, and the list before it."""

    query: Query
    text: str
    found: Found
    before: Found | None = None


class ListGame(Game[ListState]):
    """The set `published`."""

    @staticmethod
    def widths(dim: int) -> dict[str, int]:
        """See `Game`."""
        return {
            **{"query": dim, "terms": len(QUERY_FEATURES)},
            **{"found": dim, "list": len(LIST_FEATURES)},
        }

    def statics(self) -> dict[str, Features]:
        """See `Game`."""
        return {"query": self.question.vector_D, "terms": query_features(self.question)}

    def begin(self) -> ListState:
        """The single pass."""
        # As points, like every list after it: feedback weighs passages by them.
        question = self.question
        return ListState(question.query, question.text, points(question.words))

    def play(self, state: ListState, action: Action) -> ListState:
        """See `Game`."""
        query, text = self.rewrite(action, state.query, state.found)
        if not query:  # words that the collection does not know change nothing
            return state._replace(before=state.found)
        return ListState(query, text, points(self.question.search_words(query)), state.found)

    def legal(self, state: ListState) -> tuple[bool, ...]:
        """Every action is."""
        return (True,) * len(self.actions)

    def top(self, state: ListState, k: int) -> Top:
        """See `Game`."""
        places = state.found.first(k)
        return list(zip(places.tolist(), state.found.scores_N[places].tolist(), strict=True))

    def show(self, state: ListState) -> tuple[dict[str, Features], str]:
        """See `Game`."""
        return {"list": self.features.of(state.found, state.before)}, state.text
