"""The indexes of a program's worlds, built before anything is on a clock, and shown while they are.

Owns what a user sees of it. What is built, and that it is built once, is the affair of the worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from searchrl.engine.rollout.world import TaskWorld
from searchrl.retrieval.progress import OnProgress

INDEX = "index"
"""How the names of these phases begin."""


def build_indexes(
    worlds: Sequence[TaskWorld], on_phase: Callable[[str, int, int], None] = lambda *_: None
) -> None:
    """Build the indexes of all worlds.

    `on_phase` is an observer's `phase`; it hears nothing of what is over within a second.

    Raises:
        RetrieverFailure: a retriever could not be made.
    """
    for world in worlds:
        world.build_indexes(_shown(world.config.retriever.name, on_phase))


def _shown(retriever: str, on_phase: Callable[[str, int, int], None]) -> OnProgress:
    return lambda doing, done, total: on_phase(f"{INDEX} {retriever}: {doing}", done, total)
