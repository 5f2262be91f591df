"""The wrappers of environments that SearchRL brings."""

from __future__ import annotations

from typing import Annotated, Any

import gymnasium
from gymnasium.wrappers import TimeLimit
from pydantic import Field


def make_time_limit(
    env: gymnasium.Env[Any, Any], *, max_turns: Annotated[int, Field(ge=1)]
) -> gymnasium.Env[Any, Any]:
    """Gymnasium's `TimeLimit`.

    Args:
        env: the environment.
        max_turns: turns after which an episode ends, whatever the environment itself allows.
    """
    return TimeLimit(env, max_turns)
