"""Actions that keep what they find: the set `heads`.

Owns the state of such an episode. An action searches in its own way; its best passage that is not
kept yet is kept as the next of the final list, and the rest of its list is the tail. A sequence of
one action repeated is therefore that action's plain list, so every plain list is among the fixed
sequences. The agent sees the next passage of every action before it chooses. Caller: `positions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from searchrl_control.environment.actions import Action
from searchrl_control.environment.lists import SHOWN
from searchrl_control.reformulate.contract import Asked, Reformulator
from searchrl_control.searchers.question import Question
from searchrl_control.searchers.ranking import Found, points

SOURCES = (
    Action.NARROW,
    Action.BROAD,
    Action.WORDS,
    Action.DENSE,
    Action.FUSE,
    Action.FOLLOW,
    Action.HOP,
)
"""The actions that search, in the order of their numbers."""

TAIL = 40
"""Passages of each source that are looked at, beyond those kept."""


@dataclass(frozen=True, slots=True)
class HeadState:
    """The passages that were kept, and the source whose list is the tail.

    `tail` are places with their scores, best first, without the kept ones.
    """

    kept: tuple[int, ...]
    tail: tuple[tuple[int, float], ...]
    text: str
    sources: Mapping[Action, Found] = field(default_factory=dict, compare=False, repr=False)


class Heads:
    """What the actions of `heads` do.

    Args:
        reformulator: of Narrow and Broad.
    """

    def __init__(self, reformulator: Reformulator) -> None:
        self._reformulator = reformulator

    def begin(self, question: Question) -> HeadState:
        """After Search: the single pass, and nothing kept."""
        return HeadState((), _tail(question.words, ()), question.text, self._first(question))

    def play(self, question: Question, state: HeadState, action: Action) -> HeadState:
        """The state after an action; Search begins again."""
        if action is Action.SEARCH:
            return self.begin(question)
        tail = _tail(state.sources[action], state.kept)
        if not tail:  # nothing that is not kept: nothing changes
            return state
        kept = (*state.kept, tail[0][0])
        sources = dict(state.sources)
        sources[Action.HOP] = question.hop(kept)
        return HeadState(kept, tail[1:], question.text, sources)

    def is_legal(self, state: HeadState, action: Action) -> bool:
        """Whether an action has a passage to keep; Hop needs a kept one to start from."""
        if action is Action.SEARCH:
            return False
        if action is Action.TERMINATE:
            return True
        return action in state.sources and bool(self.next_of(state, action, 1))

    def top(self, state: HeadState, k: int) -> list[tuple[int, float]]:
        """The places of the first k passages, with points that say no more than the order."""
        places = [*state.kept, *(place for place, _ in state.tail)][:k]
        return [(place, 1.0 - rank / max(k, 1)) for rank, place in enumerate(places)]

    def next_of(self, state: HeadState, action: Action, count: int) -> tuple[int, ...]:
        """The next places of a source that are not kept yet, best first."""
        places = state.sources[action].first(count + len(state.kept)).tolist()
        return tuple(place for place in places if place not in state.kept)[:count]

    def _first(self, question: Question) -> dict[Action, Found]:
        """The list of every source that needs no kept passage."""
        terms = question.library.terms
        asked = _ask(question)
        narrow, broad = self._reformulator.narrow(asked), self._reformulator.broaden(asked)
        found: dict[Action, Found] = {}
        for action, rewrite in ((Action.NARROW, narrow), (Action.BROAD, broad)):
            weights = rewrite.weights
            query = terms.query_of(weights) if weights else terms.query(rewrite.text)
            found[action] = question.with_vectors(query or question.query)
        return found | {
            Action.WORDS: question.words,
            Action.DENSE: question.similar,
            Action.FUSE: question.fused,
            Action.FOLLOW: question.followed,
        }


def _ask(question: Question) -> Asked:
    found = points(question.words)
    passages = tuple(
        replace(question.library.passages[place], score=float(found.scores_N[place]))
        for place in found.first(SHOWN).tolist()
    )
    return Asked(question.text, question.library.terms.weights_of(question.query), passages)


def _tail(found: Found, kept: tuple[int, ...]) -> tuple[tuple[int, float], ...]:
    places = found.first(TAIL + len(kept))
    pairs = zip(places.tolist(), found.scores_N[places].tolist(), strict=True)
    return tuple(pair for pair in pairs if pair[0] not in kept)
