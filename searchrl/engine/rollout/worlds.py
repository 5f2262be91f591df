"""From a config and a plugin registry to the task worlds of a run.

Owns what `auto` means for a task, which components score it and who makes them. Wrong names,
expressions and data files are found here, before anything starts. What a world does is `world`'s
matter, what a score is, `rewards.scorer`'s.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium

from searchrl.config import RunConfig
from searchrl.config.curriculum import stages_of
from searchrl.config.sections import AUTO, Named, TaskConfig
from searchrl.contracts import TagProtocol
from searchrl.core.episode import SEARCH
from searchrl.engine.rollout.guarded import GuardedProtocol, GuardedRetrievers
from searchrl.engine.rollout.world import Env, TaskWorld, attribute_of, can_open, describe_part
from searchrl.errors import (
    ConfigError,
    EnvironmentFailure,
    ExpressionError,
    PluginError,
    ProtocolFailure,
)
from searchrl.plugins import Entry, Registry
from searchrl.plugins.parts import (
    Judges,
    fill_parts,
    find_judged,
    make_component,
    make_retriever_factory,
)
from searchrl.plugins.signatures import has_setting
from searchrl.protocols.tool_call import load_search_tool
from searchrl.retrieval.indexes import IndexCache
from searchrl.rewards.components import SIGNAL, make_signal
from searchrl.rewards.expression import RewardSchedule, UnknownComponentError
from searchrl.rewards.scorer import Scorer
from searchrl.tool_calls import STUCK_S, CallLock, inside, watch

SEARCH_METRICS = ("searched", "searches", "support_recall", "all_gold")
"""Components that are no metric of a task whose protocol has no search."""


def make_scorer(
    config: TaskConfig,
    run: RunConfig,
    registry: Registry,
    judges: Judges | None = None,
    protocol: TagProtocol | None = None,
) -> Scorer:
    """The scorer of a task; without a `protocol` it is for episodes that were played before.

    `config` is that of `make_protocol`. Tasks may share their `judges`. Raises UnknownNameError and
    ExpressionError.
    """
    protocol = protocol or make_protocol(config, run, registry)
    judges = judges or Judges(registry, run.normalization)
    schedule = _parse_reward(config, registry, registry.get("env", config.env.name))
    # Without a search, metrics of searches mean nothing.
    without = () if can_open(protocol, SEARCH) else SEARCH_METRICS
    metrics = [name for name in config.metrics if name not in without]
    names = dict.fromkeys([*schedule.names, *metrics])
    signals = {name: make_signal(name) for name in metrics if name.startswith(SIGNAL)}
    entries = {name: registry.get("reward", name) for name in names if name not in signals}
    judge = functools.partial(judges.get, config.judge.name, config.judge.settings)
    model = config.judge.settings.get("model")
    return Scorer(
        {name: make_component(entry, judge, run.normalization) for name, entry in entries.items()}
        | signals,
        schedule,
        group_names=[name for name, entry in entries.items() if entry.is_of_group],
        metrics=metrics,
        timeout_s=run.rollout.reward_timeout_s,
        owners={name: str(entry.owner) for name, entry in entries.items()},
        alone=[name for name, entry in entries.items() if not entry.is_concurrent],
        # A slash in the name of a metric divides it.
        judge=f"{config.judge.name} {model}".replace("/", ":") if model else config.judge.name,
    )


def _parse_reward(config: TaskConfig, registry: Registry, env: Entry) -> RewardSchedule:
    # Who wrote it: nobody looks for a mistake of the plugin on the command line.
    is_own = config.reward == env.options.get("reward")
    source = f"the default reward of {env}: " if is_own else ""
    try:
        return RewardSchedule.parse(config.reward, registry.spellings("reward"))
    except UnknownComponentError as error:
        absence = registry.explain_absence("reward", error.component)
        raise UnknownComponentError(f"{source}{error}{absence}", error.component) from error
    except ExpressionError as error:
        raise type(error)(f"{source}{error}") from error


def ensure_is_read(config: TaskConfig, env: Entry, protocol: TagProtocol) -> None:
    """Refuse a chosen retriever that neither the factory needs nor the protocol asks."""
    parameter = inspect.signature(env.load()).parameters.get("retriever")
    is_optional = parameter is not None and parameter.default is None
    if config.retriever.name == env.retriever or not is_optional or can_open(protocol, SEARCH):
        return
    raise ConfigError(
        f"retriever '{config.retriever.name}': env '{config.env.name}' needs none, and protocol "
        f"'{config.protocol.name}' has no searches, so nothing would ask it; leave out --retriever"
    )


def name_defaults(config: RunConfig, registry: Registry) -> RunConfig:
    """The config with each task's `auto` decided: its env's protocol, reward and retriever.

    Tools are listed in the protocol's settings: a server that gives them may be gone later.
    """

    def named(task: TaskConfig) -> TaskConfig:
        entry = registry.get("env", task.env.name)
        name = entry.protocol if task.protocol.name == AUTO else task.protocol.name
        given = (task.protocol.settings, task.env.settings)
        settings = registry.offer_tools(entry, name, *given)
        decided: dict[str, Any] = {"protocol": Named(name=name, **settings)}
        if task.retriever.name == AUTO:
            decided["retriever"] = task.retriever.model_copy(update={"name": entry.retriever})
        if task.reward == AUTO:
            decided["reward"] = entry.reward
        return task.model_copy(update=decided)

    return config.model_copy(update={"tasks": [named(task) for task in config.tasks]})


def build_indexes(worlds: Iterable[TaskWorld], on_phase: Callable[[str, int, int], None]) -> None:
    """Build the indexes of all worlds; `on_phase` is an observer's `phase` (`index NAME: …`)."""
    for world in worlds:
        head = f"index {world.config.retriever.name}: "
        world.build_indexes(lambda doing, *counts, head=head: on_phase(head + doing, *counts))


def make_worlds(
    config: RunConfig, registry: Registry, indexes: dict[str, IndexCache] | None = None
) -> list[TaskWorld]:
    """Build the worlds of all tasks of a run, and try the environment of each once.

    Parts that are set alike share an index, also with earlier worlds if they had these `indexes`.
    """
    indexes = {} if indexes is None else indexes
    named = name_defaults(config, registry)
    limits = (config.rollout.env_timeout_s or 0.0, config.rollout.reward_timeout_s or 0.0)
    watch(max(STUCK_S, *limits))
    judges = Judges(registry, config.normalization)
    make = functools.partial(
        _make_world, run=named, registry=registry, locks={}, judges=judges, indexes=indexes
    )
    return [_make_levels(task, make) for task in named.tasks]


def make_protocol(config: TaskConfig, run: RunConfig, registry: Registry) -> GuardedProtocol:
    """The protocol of a task alone, for episodes that were played before.

    `config` must have no `auto` left (see `name_defaults`). Neither its environment nor its
    retriever is made, so their data need not be there.
    """
    env_entry = registry.get("env", config.env.name)
    protocol_entry = registry.get("protocol", config.protocol.name)
    wrapper, given = config.wrapper, (config.protocol.settings, config.env.settings)
    settings = registry.offer_tools(env_entry, config.protocol.name, *given)
    more = wrapper and registry.get("wrapper", wrapper.name).list_tools(wrapper.settings)
    if wrapper and more:
        if not has_setting(protocol_entry.load(), "tools"):
            raise ConfigError(
                f"wrapper '{wrapper.name}' gives the policy tools, and protocol "
                f"'{config.protocol.name}' lists none; use --protocol tool-call"
            )
        settings = {**settings, "tools": [*settings.get("tools", [load_search_tool()]), *more]}
    return GuardedProtocol(
        protocol_entry.make(**settings),
        str(protocol_entry),
        who=describe_part("protocol", config.protocol.name, protocol_entry.owner),
        # What the user wrote for a prompt is always in it.
        has_instruction=run.model.instructions or "instruction" in config.protocol.settings,
    )


def _make_levels(config: TaskConfig, make: Callable[[TaskConfig], TaskWorld]) -> TaskWorld:
    """The world of a task; where its difficulty changes, that of the last one with all others."""
    if config.difficulty is None:
        return make(config)
    levels: dict[Any, TaskWorld] = {}
    for _, value in stages_of(config.difficulty):
        env = Named(**{**config.env.model_dump(), "difficulty": value})
        leveled = config.model_copy(update={"env": env})
        levels[value] = levels.get(value) or make(leveled)
        last = levels[value]
    last.levels = levels
    return last


def _make_world(
    config: TaskConfig,
    run: RunConfig,
    registry: Registry,
    locks: dict[str, CallLock],
    judges: Judges,
    indexes: dict[str, IndexCache],
) -> TaskWorld:
    """A world. `locks`: one for each retriever that takes one call at a time."""
    names = {kind: getattr(config, kind).name for kind in ("env", "protocol", "retriever")}
    entries = {kind: registry.get(kind, name) for kind, name in names.items()}
    env_entry = entries["env"]
    protocol = make_protocol(config, run, registry)
    ensure_is_read(config, env_entry, protocol)

    def make_retrievers(name: str, settings: Mapping[str, Any]) -> IndexCache:
        entry = registry.get("retriever", name)
        factory = make_retriever_factory(registry, name, settings)
        lock = None if factory.is_concurrent else locks.setdefault(entry.qualified, CallLock())
        who = describe_part("retriever", name, entry.owner)
        guarded = GuardedRetrievers(factory, who, lock, run.rollout.env_timeout_s)
        size = max(64, run.rollout.prompts_per_step)  # a corpus for each group of a step
        made = IndexCache(guarded, size, functools.partial(inside, who), CallLock)
        return indexes.setdefault(repr((config.env, name, settings, run.rollout)), made)

    # Every environment instance shares them: the rollouts of a group search one index. They are
    # made at the first search; a wrong setting is reported now.
    retriever = make_retrievers(config.retriever.name, config.retriever.settings)
    wrapper_entry, around = None, dict[str, Any]()
    if config.wrapper:
        wrapper_entry = registry.get("wrapper", config.wrapper.name)
        around = fill_parts(registry, wrapper_entry, config.wrapper.settings, make_retrievers)
    is_served = wrapper_entry is not None and hasattr(wrapper_entry.load(), "serve")
    if is_served:  # an agent writes, and no turn has the form of a protocol
        metrics = [name for name in config.metrics if name != "format"]
        config = config.model_copy(update={"metrics": metrics})
    scorer = make_scorer(config, run, registry, judges, protocol)
    if is_served and "format" in scorer.schedule.names:
        raise ConfigError(
            f"the reward '{config.reward}' has the component 'format', which judges the turns of a "
            f"protocol; with {wrapper_entry} an agent writes. Leave it out: --reward em"
        )
    # Now, so that a setting called `retriever` is refused by its name.
    env_settings = env_entry.ensure_settings(
        fill_parts(registry, env_entry, config.env.settings, make_retrievers)
    )

    def make_env() -> Env:
        env = env_entry.make(protocol=protocol, retriever=retriever, **env_settings)
        entry = env_entry
        if wrapper_entry and isinstance(env, gymnasium.Env):
            entry, env = wrapper_entry, wrapper_entry.make(env, **around)
        if not isinstance(env, gymnasium.Env):
            raise EnvironmentFailure(
                f"{entry}: expected its factory to return a gymnasium.Env, got {type(env).__name__}"
            )
        return env

    world = TaskWorld(
        name=config.env.name,
        config=config,
        protocol=protocol,
        scorer=scorer,
        who={kind: describe_part(kind, names[kind], one.owner) for kind, one in entries.items()},
        make_env=make_env,
        entry=env_entry,
        timeout_s=run.rollout.env_timeout_s,
        is_served=is_served,
        compacts=wrapper_entry is not None and hasattr(wrapper_entry.load(), "measure"),
        judged=find_judged(registry, judges, config.judge, scorer.components),
    )
    try:
        world.notes = tuple(map(str, world.ask(lambda env: attribute_of(env, "notes"))))
    except ProtocolFailure as error:  # an env asks its protocol for examples of turns
        raise PluginError(f"{entries['protocol']}: {error}") from error
    return world
