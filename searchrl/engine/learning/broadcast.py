"""What an algorithm says of rollouts (advantages, targets), checked and put onto their tokens.

Owns which shapes are taken: one number per rollout, per turn or per token that the model wrote.
`packing` is the only caller.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from searchrl.core.advantage import Advantage
from searchrl.core.group import Trainable
from searchrl.core.trajectory import Author, Trajectory
from searchrl.errors import PluginError


def check_told(
    values: Any, items: Sequence[Trainable], owner: str, what: str = "advantage"
) -> list[Advantage]:
    """The advantages (or targets) as plain numbers and tuples, each fit for its rollout.

    Whatever an unscored rollout was given is not read; its advantage becomes 0.
    """
    values = _plain(values)
    if not isinstance(values, list) or len(values) != len(items):
        got = len(values) if isinstance(values, list) else type(values).__name__
        raise PluginError(f"{owner}: expected {len(items)} {what}s, one per rollout, got {got}")
    checked: list[Advantage] = []
    for value, item in zip(map(_plain, values), items, strict=True):
        if item.reward is None:
            checked.append(0.0)
            continue
        name, trajectory = item.trajectory.rollout_id, item.trajectory
        given = [_plain(one) for one in value] if isinstance(value, list) else [value]
        for one in given:
            if not isinstance(one, numbers.Real) or not math.isfinite(one):
                raise PluginError(f"{owner}: the {what} of {name} is {one!r}; expected a number")
        turns, tokens = len(trajectory.turns), trajectory.num_model_tokens
        if isinstance(value, list) and len(value) not in (turns, tokens):
            raise PluginError(
                f"{owner}: {len(value)} {what}s for {name}; expected one number, {turns} (one "
                f"per turn) or {tokens} (one per token the model wrote)"
            )
        column = tuple(float(one) for one in given)
        checked.append(column if isinstance(value, list) else column[0])
    return checked


def _plain(value: Any) -> Any:
    """Lists for tuples, arrays and tensors; anything else as it is."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else value


def broadcast(
    value: Advantage, trajectory: Trajectory, mask: Sequence[bool]
) -> float | tuple[float, ...]:
    """One number as it is; one per turn or per model token as a column over the trained tokens."""
    if not isinstance(value, Sequence):
        return value
    # As many turns as tokens: every turn is one token, and both readings agree.
    if len(value) == len(trajectory.turns):
        turns = zip(trajectory.turns_of, mask, strict=True)
        return tuple(value[turn] for turn, is_trained in turns if is_trained)
    authors = zip(trajectory.authors, mask, strict=True)
    of_model = (is_trained for author, is_trained in authors if author is Author.MODEL)
    return tuple(one for one, is_trained in zip(value, of_model, strict=True) if is_trained)
