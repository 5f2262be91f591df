"""Parts that are made of other parts: with retrievers in their settings, or with a judge.

Owns what `vector: dense` or `news: {name: bm25, k1: 1.2}` means among the settings of a retriever
or an environment, and which component gets a judge.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
from pydantic import ValidationError

from searchrl.config.sections import Named
from searchrl.contracts import Judge, RetrieverFactory, TagProtocol
from searchrl.contracts.retrieving import NamedFactory
from searchrl.contracts.scoring import GroupReward, Reward
from searchrl.errors import ConfigError, PluginError
from searchrl.plugins.loading import load_plugins
from searchrl.plugins.registry import Entry, Registry
from searchrl.plugins.signatures import (
    find_retriever_settings,
    has_setting,
    passed_keywords,
)


def make_retriever_factory(
    registry: Registry, name: str, settings: Mapping[str, Any]
) -> NamedFactory:
    """Return the factory of a registered retriever with its settings, all of them checked."""
    entry = registry.get("retriever", name)
    arguments = entry.ensure_settings(fill_parts(registry, entry, settings))
    factory = functools.partial(entry.load(), **arguments)
    lists = (value if isinstance(value, list) else [value] for value in arguments.values())
    parts = [one for parts in lists for one in parts if isinstance(one, NamedFactory)]
    is_concurrent = entry.is_concurrent and all(one.is_concurrent for one in parts)
    return NamedFactory(factory, entry.name, settings, is_concurrent)


def make_judge(registry: Registry, name: str, settings: Mapping[str, Any]) -> Judge:
    """Make a registered judge with its settings. PluginError if its plugin makes no judge."""
    entry = registry.get("judge", name)
    made = entry.make(**settings)
    if not isinstance(made, Judge):
        raise PluginError(
            f"{entry}: its factory makes a {type(made).__name__} without a method judge(case)"
        )
    return made


class Judges:
    """The judges of a run: one for each name with its settings, so that all tasks share a budget.

    A judge is made when the first component asks for it. One that takes a `normalization`, and was
    given none, gets that of the run.
    """

    def __init__(self, registry: Registry, normalization: str) -> None:
        self._registry = registry
        self._normalization = normalization
        self._made: dict[str, Judge] = {}

    def get(self, name: str, settings: Mapping[str, Any]) -> Judge:
        """The judge of a name with settings; raises as `make_judge`."""
        if has_setting(self._registry.get("judge", name).load(), "normalization"):
            settings = {"normalization": self._normalization, **settings}
        key = json.dumps([name, settings], sort_keys=True, default=repr)
        if key not in self._made:
            self._made[key] = make_judge(self._registry, name, settings)
        return self._made[key]


@dataclass(frozen=True, slots=True)
class Judged:
    """The judge of a task, and the components that ask it: about episodes, and about groups."""

    name: str
    judge: Judge
    singles: tuple[str, ...]
    groups: tuple[str, ...]


def find_judged(
    registry: Registry, judges: Judges, named: Named, components: Iterable[str]
) -> Judged | None:
    """The judge `named`, and which of these components ask it; None if none does."""
    entries = [registry.get("reward", one) for one in components]
    asking = [entry for entry in entries if has_setting(entry.load(), "judge")]
    if not asking:
        return None
    groups = tuple(entry.name for entry in asking if entry.is_of_group)
    singles = tuple(entry.name for entry in asking if not entry.is_of_group)
    return Judged(named.name, judges.get(named.name, named.settings), singles, groups)


def make_component(
    entry: Entry, judge: Callable[[], Judge], normalization: str
) -> Reward | GroupReward:
    """Make a reward component; `judge` is called only if it takes one."""
    factory = entry.load()
    parts: dict[str, Any] = {"judge": judge()} if has_setting(factory, "judge") else {}
    if has_setting(factory, "normalization"):
        parts["normalization"] = normalization
    return cast(Reward | GroupReward, entry.make(**parts))


def fill_parts(
    registry: Registry,
    entry: Entry,
    settings: Mapping[str, Any],
    make: Callable[[str, Mapping[str, Any]], RetrieverFactory] | None = None,
) -> dict[str, Any]:
    """Return settings with factories in place of the retrievers that they name.

    Only of a retriever, an environment or a wrapper, and only settings that are annotated
    `RetrieverFactory`, a list of it or `NamedFactory`; others, and factories of Python callers,
    stay as they are. `make(name, settings)` makes a factory; by default it is
    `make_retriever_factory`, and raises as that. Raises ConfigError for a value that names none.
    """
    filled = dict(settings)
    if entry.kind not in ("retriever", "env", "wrapper") or not settings:
        return filled
    make = make or functools.partial(make_retriever_factory, registry)

    def fill(key: str, value: Any) -> Any:
        if callable(value):
            return value
        try:
            named = Named.model_validate(value)
        except ValidationError as error:
            raise ConfigError(
                f"{entry.kind} '{entry.title}': cannot use {key} = {value!r}: expected the name of "
                "a retriever, or a mapping of its name and its settings: {name: bm25, k1: 1.2}"
            ) from error
        return make(named.name, named.settings)

    for key, is_list in find_retriever_settings(entry.load()).items():
        value = settings.get(key)
        if value is None or key in passed_keywords(entry.kind):
            continue
        if not is_list:
            filled[key] = fill(key, value)
        elif isinstance(value, list):  # anything else is refused with the other settings
            filled[key] = [fill(f"{key}.{place}", one) for place, one in enumerate(value)]
    return filled


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
        protocol = loaded.make_protocol(env_entry, named.name, named.settings, settings)
    if isinstance(retriever, str | Mapping):
        named = Named.model_validate(retriever)
        retriever = make_retriever_factory(loaded, named.name, named.settings)
    filled = fill_parts(loaded, env_entry, settings)
    made: gymnasium.Env[Any, Any] = env_entry.make(protocol=protocol, retriever=retriever, **filled)
    return made
