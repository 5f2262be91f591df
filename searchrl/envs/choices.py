"""Choice environments: a `Discrete` action, and observations as one row of numbers with a mask.

Owns how the spaces of such an environment become a `ChoiceSpace`, and how an observation becomes a
`View`, checked. The row is that of `gymnasium.spaces.flatten`: the parts of a `Dict` in the order
of their names. Imports no torch. Callers: the driver of choices, the checker, and plans of runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, flatdim, flatten

from searchrl.contracts import ChoiceSpace
from searchrl.core.trajectory import View
from searchrl.errors import ConfigError, EnvironmentFailure

MASK = "action_mask"
"""The key in `info` under which an environment says which actions are legal."""
_NAMES = "action_names"
_MAX = "max_choices"
_ROW = "<f4"


def find_space(env: gymnasium.Env[Any, Any], name: str) -> ChoiceSpace:
    """The space of an environment's choices.

    Actions have the names of its `action_names`. An episode has at most its `max_choices`, or the
    steps to which Gymnasium limits it.

    Raises:
        ConfigError: for other spaces, names that do not fit, or an episode without a limit.
    """
    actions, seen = env.action_space, env.observation_space
    if not isinstance(actions, Discrete) or actions.start != 0:
        raise ConfigError(
            f"env {name}: its actions are {actions}; a choice environment has Discrete(n), "
            "numbered from 0"
        )
    parts = seen.spaces if isinstance(seen, Dict) else {"observation": seen}
    for part, space in parts.items():
        if not isinstance(space, Box | Discrete):
            raise ConfigError(
                f"env {name}: its observation '{part}' is {space}; a choice environment shows Box "
                "and Discrete, alone or in a Dict"
            )
    count = int(actions.n)
    names = env.get_wrapper_attr(_NAMES) if env.has_wrapper_attr(_NAMES) else range(count)
    named = tuple(map(str, names))
    if len(named) != count or len(set(named)) != count:
        raise ConfigError(
            f"env {name}: {_NAMES} must be {count} different names, one per action, got {named}"
        )
    limit = env.get_wrapper_attr(_MAX) if env.has_wrapper_attr(_MAX) else None
    limit = limit or getattr(env.spec, "max_episode_steps", None)
    if not isinstance(limit, int) or limit < 1:
        raise ConfigError(
            f"env {name}: it does not say how many choices an episode can have; give it an "
            f"attribute {_MAX}, a whole number above 0"
        )
    blocks = tuple((part, flatdim(space)) for part, space in parts.items())
    return ChoiceSpace(blocks, named, limit)


def take_view(
    env: gymnasium.Env[Any, Any], observation: Any, info: Mapping[str, Any], call: str
) -> View:
    """What a policy sees of an observation and its info. Without a mask, all actions are legal.

    `call` is `reset` or `step`, for errors.

    Raises:
        EnvironmentFailure: it is not of the observation space, holds a number that is not finite,
            or its mask does not fit or leaves no action.
    """
    space: gymnasium.Space[Any] = env.observation_space
    try:
        row = np.asarray(flatten(space, observation), dtype=_ROW)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise EnvironmentFailure(
            f"{call}() returned an observation that is not of its space {space}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if row.shape != (flatdim(space),):
        raise EnvironmentFailure(
            f"{call}() returned an observation of {row.size} numbers; its space has "
            f"{flatdim(space)}"
        )
    if not np.isfinite(row).all():
        number = int(np.flatnonzero(~np.isfinite(row))[0])
        raise EnvironmentFailure(
            f"{call}() returned an observation whose number {number} is {row[number]}; expected "
            "finite numbers of 32 bits"
        )
    return View(row.tobytes(), _read_mask(env, info.get(MASK), call))


def read_row(view: View) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The numbers of a view."""
    return np.frombuffer(view.values, dtype=_ROW)


def _read_mask(env: gymnasium.Env[Any, Any], mask: Any, call: str) -> tuple[bool, ...]:
    space = env.action_space
    assert isinstance(space, Discrete)
    if mask is None:
        return (True,) * int(space.n)
    found = np.asarray(mask)
    is_fit = found.shape == (int(space.n),) and found.dtype.kind in "biu"
    if not is_fit or not set(found.tolist()) <= {0, 1}:
        raise EnvironmentFailure(
            f"{call}() put into info['{MASK}'] {mask!r:.80}; expected {int(space.n)} values of 0 "
            "or 1, one per action"
        )
    if not found.any():
        raise EnvironmentFailure(
            f"{call}() put into info['{MASK}'] a mask that leaves no action; end the episode "
            "instead, or leave one"
        )
    return tuple(bool(value) for value in found)
