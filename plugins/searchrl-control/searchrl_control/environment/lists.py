"""Actions on the list that is there: the sets `published` and `wide`.

Owns the state of such an episode and what every action makes of it. Actions add up: Narrow and
Broad change the query, Dense and Fuse how it is searched, Link and Follow what is added to its
points. Pure functions of the question and the actions before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from searchrl_control.environment.actions import Action
from searchrl_control.reformulate.contract import Asked, Reformulator, Rewrite
from searchrl_control.searchers.question import PIVOTS, VECTOR_WEIGHT, Question
from searchrl_control.searchers.ranking import DEPTH, Found, Scores, fuse, points, raise_by

SHOWN = 10
"""Passages that a reformulator is shown, at most."""


@dataclass(frozen=True, slots=True)
class ListState:
    """The list that is there and how it came about.

    `weights` are the terms that were searched, `way` the kind of search. `linked_N` and `rest_N`
    are what Link and Follow added. `before` is the state that Back returns to.
    """

    weights: Mapping[str, float]
    text: str
    found: Found
    way: Action = Action.WORDS
    linked_N: Scores | None = None
    rest_N: Scores | None = None
    before: ListState | None = None


class Lists:
    """What the actions of `published` and `wide` do.

    Args:
        reformulator: of Narrow and Broad.
    """

    def __init__(self, reformulator: Reformulator) -> None:
        self._reformulator = reformulator

    def begin(self, question: Question) -> ListState:
        """After Search: the single pass."""
        weights = question.library.terms.weights_of(question.query)
        # As points, like every list after it: feedback weighs passages by them.
        return ListState(weights, question.text, points(question.words, DEPTH))

    def play(self, question: Question, state: ListState, action: Action) -> ListState:
        """The state after an action; Search begins again."""
        if action is Action.SEARCH:
            return self.begin(question)
        if action is Action.BACK and state.before is not None:
            return state.before
        changed = self._change(question, state, action)
        return replace(changed, found=_find(question, changed), before=state)

    def is_legal(self, state: ListState, action: Action) -> bool:
        """Whether an action does anything here: there is a list before this one to go back to."""
        return action is not Action.BACK or state.before is not None

    def top(self, state: ListState, k: int) -> list[tuple[int, float]]:
        """The places of the first k passages with their points, best first."""
        places = state.found.first(k)
        return list(zip(places.tolist(), state.found.scores_N[places].tolist(), strict=True))

    def _change(self, question: Question, state: ListState, action: Action) -> ListState:
        if action in (Action.NARROW, Action.BROAD):
            return _searching(question, state, self._rewrite(question, state, action))
        if action in (Action.DENSE, Action.FUSE):
            return replace(state, way=action)
        pivots = state.found.first(PIVOTS).tolist()
        linked = _most(state.linked_N, question.linked(pivots))
        if action is Action.LINK:
            return replace(state, linked_N=linked)
        rest = question.rest_of(pivots)
        if state.rest_N is not None:
            rest = (0.5 * (state.rest_N + rest)).astype(np.float32)
        return replace(state, linked_N=linked, rest_N=rest)

    def _rewrite(self, question: Question, state: ListState, action: Action) -> Rewrite:
        passages = tuple(
            replace(question.library.passages[place], score=score)
            for place, score in self.top(state, SHOWN)
        )
        asked = Asked(question.text, state.weights, passages)
        if action is Action.NARROW:
            return self._reformulator.narrow(asked)
        return self._reformulator.broaden(asked)


def _searching(question: Question, state: ListState, rewrite: Rewrite) -> ListState:
    """The state with another query; one that the collection knows no term of changes nothing."""
    terms = question.library.terms
    query = terms.query_of(rewrite.weights) if rewrite.weights else terms.query(rewrite.text)
    if not query:
        return state
    return replace(state, weights=terms.weights_of(query), text=rewrite.text)


def _find(question: Question, state: ListState) -> Found:
    """The list of a state: its search, half of it for the rest, and the links."""
    query = question.library.terms.query_of(state.weights)
    if state.way is Action.DENSE:
        base = question.similar
    elif state.way is Action.FUSE:
        base = fuse(question.search_words(query), question.similar, VECTOR_WEIGHT)
    else:
        base = question.search_words(query)
    found = points(base, DEPTH)
    if state.rest_N is not None:
        half = Found((0.5 * found.scores_N).astype(np.float32), found.is_in_N)
        found = raise_by(half, (0.5 * state.rest_N).astype(np.float32))
    return found if state.linked_N is None else raise_by(found, state.linked_N)


def _most(before: Scores | None, now: Scores) -> Scores:
    return now if before is None else np.maximum(before, now)
