"""What the agent sees of each source in the set `heads`: the next passage it would keep.

Owns the features of a candidate: how every search scores it, at which ranks it stands, how much it
adds to what is kept, and how far kept passages name it. `S` sources, `C` features.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from searchrl_control.environment.actions import Action
from searchrl_control.environment.features import Features, bounded

if TYPE_CHECKING:
    from searchrl_control.environment.heads import HeadGame

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

DEPTH = 60
"""Passages of each source that are looked at."""

CANDIDATE_FEATURES = (
    *(f"points_{action.lower()}" for action in SOURCES),
    *(f"rank_{action.lower()}" for action in SOURCES),
    *("words", "similar", "similar_gap", "title_share", "source_gap", "votes"),
    *("adds", "named", "named_by_it", "left", "near_kept"),
)

Kept = tuple[int, ...]
"""The places of the passages that were kept, in their order."""


def tell_candidates(sources: HeadGame, kept: Kept) -> Features:
    """The features [S, C] of the candidates; a row of zeros for a source without one."""
    nexts = {action: sources.next_of(action, kept, 2) for action in SOURCES}
    # Follow stands for Hop until a passage is kept: the scorer sees no hole there.
    seen = [a if kept or a is not Action.HOP else Action.FOLLOW for a in SOURCES]
    lists = [sources.found(action, kept) or sources.question.words for action in seen]
    ranks = [{p: rank for rank, p in enumerate(sources.order(action, kept))} for action in seen]
    votes = Counter(places[0] for places in nexts.values() if places)
    told = np.zeros((len(SOURCES), len(CANDIDATE_FEATURES)), dtype=np.float32)
    similar = sources.question.similar.scores_N
    for row, places in enumerate(nexts.values()):
        if places:
            place = places[0]
            others = lists[row].scores_N[list(places)]
            told[row] = bounded(
                [
                    *(_relative(one.scores_N, place) for one in lists),
                    *(1 / (1 + one.get(place, DEPTH)) for one in ranks),
                    sources.features.words_of(place),
                    float(similar[place]),
                    float(similar[place] - similar.max()),
                    sources.features.title_share(place),
                    float(others[0] - others[-1]),
                    votes[place] / len(SOURCES),
                    *_beside_kept(sources, place, kept),
                ]
            )
    return told


def _beside_kept(sources: HeadGame, place: int, kept: Kept) -> list[float]:
    """What a passage adds to those that are kept, and how they name each other."""
    library, features = sources.question.library, sources.features
    covers = features.share_of(place)
    covered = np.zeros(len(covers), dtype=np.bool_)
    for one in kept:
        covered |= features.share_of(one)
    named = named_by_it = near = 0.0
    if kept:
        named = max(float(library.links(one)[place]) for one in kept)
        named_by_it = max(float(library.links(place)[one]) for one in kept)
        vectors = library.vectors.vectors_ND
        near = float(np.max(vectors[list(kept)] @ vectors[place]))
    adds, left = features.idf_share(covers & ~covered), features.idf_share(~covered)
    return [adds, named, named_by_it, left, near]


def _relative(scores_N: Features, place: int) -> float:
    """A score over the highest one: comparable between words, vectors and points."""
    highest = float(scores_N.max())
    return float(scores_N[place]) / highest if highest > 0 else 0.0
