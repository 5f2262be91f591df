"""`searchrl.make_env`: any registered environment, ready to play, from names.

Puts environment, protocol and retriever together for use outside a run: in notebooks, in a plain
Gymnasium loop, in Gymnasium's own `make`. Runs do this in `engine.rollout.worlds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from searchrl.config.sections import Named
from searchrl.contracts import RetrieverFactory, TagProtocol
from searchrl.plugins import load_plugins
from searchrl.plugins.parts import fill_parts, make_retriever_factory


def make_env(
    env: str,
    *,
    protocol: str | Mapping[str, Any] | TagProtocol | None = None,
    retriever: str | Mapping[str, Any] | RetrieverFactory | None = None,
    plugins: Sequence[str] = (),
    **settings: Any,
) -> gymnasium.Env[Any, Any]:
    """Make a registered environment; `settings` are its own.

    `protocol` and `retriever` are a registered name, a mapping `{"name": ..., **its settings}`, or
    an object: a protocol, a retriever factory. Without one, the environment's own is used.
    `plugins` are plugin files or modules to load.

    >>> env = make_env("regulations", protocol={"name": "think-search-answer"})
    >>> prompt, info = env.reset(seed=0)
    """
    loaded = load_plugins(plugins)
    env_entry = loaded.get("env", env)
    if protocol is None:
        protocol = env_entry.protocol
    if retriever is None:
        retriever = env_entry.retriever
    if isinstance(protocol, str | Mapping):
        named = Named.model_validate(protocol)
        protocol = loaded.make_protocol(env_entry, named.name, named.settings)
    if isinstance(retriever, str | Mapping):
        named = Named.model_validate(retriever)
        retriever = make_retriever_factory(loaded, named.name, named.settings)
    filled = fill_parts(loaded, env_entry, settings)
    made: gymnasium.Env[Any, Any] = env_entry.make(protocol=protocol, retriever=retriever, **filled)
    return made
