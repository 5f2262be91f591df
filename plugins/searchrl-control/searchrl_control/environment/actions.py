"""The actions and their numbers, by set.

Owns the names, the two sets and their order. Numbers 0 to 3 are those that were published, in
every set. What an action does is in `games`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Action(StrEnum):
    """What the agent can do."""

    SEARCH = "Search"
    """The single pass: BM25 of the question. It is the first action of every episode."""
    NARROW = "Narrow"
    """The reformulator's narrower search; RM3 by default."""
    BROAD = "Broad"
    """The reformulator's broader search; fewer terms with neighbours by default."""
    TERMINATE = "Terminate"
    """The list that is there is the answer."""
    WORDS = "Words"
    """By words."""
    DENSE = "Dense"
    """By vectors."""
    FUSE = "Fuse"
    """By words and vectors."""
    FOLLOW = "Follow"
    """Half of the points for what the first three passages leave open, and links."""
    HOP = "Hop"
    """As Follow, from the passages that were kept."""


PUBLISHED, HEADS = "published", "heads"

_FIRST = (Action.SEARCH, Action.NARROW, Action.BROAD, Action.TERMINATE)
_MORE = (Action.WORDS, Action.DENSE, Action.FUSE, Action.FOLLOW, Action.HOP)

SETS: Mapping[str, tuple[Action, ...]] = {PUBLISHED: _FIRST, HEADS: (*_FIRST, *_MORE)}
"""The sets. In `published` an action changes the list that is there. In `heads` it searches in its
way, and its best new passage is kept as the next of the final list."""
