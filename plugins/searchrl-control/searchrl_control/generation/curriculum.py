"""Which question comes next: all alike at first, then mostly hard ones.

Owns the published curriculum (after 1,000 episodes, a hard question with probability .7) and the
levels as the setting `difficulty` names them, so that a configuration can change them at a step.
Draws are functions of a generator or of the number of a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from searchrl import ConfigError, suggest
from searchrl_control.generation.difficulty import Difficulty

ANY, MOSTLY_HARD = "any", "mostly_hard"
LEVELS = (ANY, *Difficulty, MOSTLY_HARD)
"""What `difficulty` can be set to."""

HARD_SHARE = 0.7


class Curriculum(NamedTuple):
    """After `after` episodes, a question is hard with probability `hard_share`."""

    after: int = 1_000
    hard_share: float = HARD_SHARE

    def draw(self, rng: np.random.Generator, levels: Sequence[Difficulty], episode: int) -> int:
        """The number of the next question.

        Args:
            rng: what draws.
            levels: of all questions.
            episode: how many episodes there were before this one.
        """
        hard = [number for number, level in enumerate(levels) if level is Difficulty.HARD]
        if episode >= self.after and hard and rng.random() < self.hard_share:
            return hard[int(rng.integers(len(hard)))]
        return int(rng.integers(len(levels)))


def ensure_level(level: str) -> str:
    """Return the value of `difficulty`; raise `ConfigError` if there is none of this name."""
    if level not in LEVELS:
        raise ConfigError(f"env.difficulty: no level {level!r}.{suggest(level, LEVELS)}")
    return level


def order_by(level: str, levels: Sequence[Difficulty], key: str) -> list[int]:
    """The questions that a level has, as the numbers of tasks: task i is question `order[i]`.

    `mostly_hard` has as many tasks as there are questions, about .7 of them hard ones; which, the
    number of the task and `key` decide. Where no question is hard, the hardest there are stand in
    for them: a run over several collections must not end because the single pass is good on one.

    Raises:
        ConfigError: no question is of this level.
    """
    if level == ANY:
        return list(range(len(levels)))
    hardest = next((one for one in (Difficulty.HARD, Difficulty.MEDIUM) if one in levels), None)
    wanted = (hardest or Difficulty.EASY) if level == MOSTLY_HARD else Difficulty(level)
    of_level = [number for number, one in enumerate(levels) if one is wanted]
    if not of_level:
        raise ConfigError(
            f"env.difficulty: no question of this collection is {wanted}; use any, or another"
        )
    if level != MOSTLY_HARD:
        return of_level
    order = []
    for task in range(len(levels)):
        rng = Random(f"{key}/{task}")
        order.append(rng.choice(of_level) if rng.random() < HARD_SHARE else task)
    return order
