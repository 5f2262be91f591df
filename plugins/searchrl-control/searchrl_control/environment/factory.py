"""The factory of `--env retrieval-control`: how a language model gets the environment, in words."""

from __future__ import annotations

import inspect
from typing import Any

from searchrl.contracts import RetrieverFactory, TagProtocol
from searchrl.envs import TextAdapter
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.settings import EnvSettings
from searchrl_control.environment.worlds import ENV


def make_env(*, protocol: TagProtocol, retriever: RetrieverFactory, **settings: Any) -> TextAdapter:
    """The environment in words; a language model is shown titles and texts, and not numbers."""
    env = RetrievalControlEnv(render_mode="ansi", **settings)
    return TextAdapter(
        env,
        protocol=protocol,
        name=ENV,
        action_names=list(env.action_names),
        max_turns=env.max_steps,
    )


# A configuration is checked against the signature of the factory.
_own = [*inspect.signature(make_env).parameters.values()][:2]
_of_env = inspect.signature(EnvSettings).parameters.values()
make_env.__signature__ = inspect.Signature([*_own, *_of_env])  # type: ignore[attr-defined]
