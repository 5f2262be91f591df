"""Registered environments as Gymnasium ids, and the one function that builds any of them.

Owns `searchrl.make_env` and the rule `my_env` -> `searchrl/MyEnv-v0`. A registration holds names
and plugin sources only, so it survives `AsyncVectorEnv` and a spawned worker. Knows no
environment: names become objects in the plugin registry, imported when an env is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import register, registry

from searchrl.contracts import RetrieverFactory, TagProtocol

_MAKE_ENV = "searchrl.envs.gym_ids:make_env"


def make_env(
    env: str,
    *,
    protocol: str | Mapping[str, Any] | TagProtocol = "think-search-answer",
    retriever: str | Mapping[str, Any] | RetrieverFactory = "bm25",
    plugins: Sequence[str] = (),
    **settings: Any,
) -> gymnasium.Env[Any, Any]:
    """Make a registered environment; `settings` are its own.

    `protocol` and `retriever` are a registered name, a mapping `{"name": ..., **its settings}`, or
    an object: a protocol, a retriever factory. `plugins` are plugin files or modules to load.

    >>> env = make_env("regulations", protocol={"name": "think-search-answer"})
    >>> prompt, info = env.reset(seed=0)
    """
    from searchrl.plugins import load_plugins

    loaded = load_plugins(plugins)
    if isinstance(protocol, str | Mapping):
        name, own = _split(protocol)
        protocol = loaded.get("protocol", name).make(**own)
    if isinstance(retriever, str | Mapping):
        name, own = _split(retriever)
        factory: Callable[..., Any] = loaded.get("retriever", name).load()
        retriever = partial(factory, **own) if own else factory
    made: gymnasium.Env[Any, Any] = loaded.get("env", env).make(
        protocol=protocol, retriever=retriever, **settings
    )
    return made


def gym_id(env: str) -> str:
    """The Gymnasium id of a registered name: `gsm-tools` is `searchrl/GsmTools-v0`."""
    words = [word for word in re.split(r"[-_.]+", env) if word]
    return f"searchrl/{''.join(word[0].upper() + word[1:] for word in words)}-v0"


def register_gym_id(env: str, plugins: Sequence[str] = ()) -> str:
    """Register `env` with Gymnasium (again: replaces it) and return its id."""
    name = gym_id(env)
    # Replaced in silence: the same env, perhaps with other plugin sources than before.
    registry.pop(name, None)
    kwargs: dict[str, Any] = {"env": env}
    if plugins:
        kwargs["plugins"] = tuple(plugins)
    register(name, entry_point=_MAKE_ENV, kwargs=kwargs)
    return name


def _split(spec: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        return spec, {}
    settings = dict(spec)
    return str(settings.pop("name")), settings
