"""The task world: one entry of `tasks` turned into objects the rollout driver can use.

Owns the environments, protocol, scorer and scripted policies of a task, and the pool of
environment instances. Speaks strings only. Built by `train`, `evaluate`, `sft` and `play` from a
config and a plugin registry; wrong names, expressions and data files are found here, before
anything starts.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import gymnasium

from searchrl.config import RunConfig
from searchrl.config.curriculum import stages_of
from searchrl.config.sections import AUTO, Named, TaskConfig
from searchrl.contracts import TagProtocol
from searchrl.contracts.playing import ExpertFactory
from searchrl.core.episode import Task
from searchrl.engine.rollout.guarded import GuardedProtocol, GuardedRetrievers
from searchrl.engine.rollout.scorers import build_scorer, can_open, ensure_is_read
from searchrl.envs.splits import TRAIN, VALIDATION, num_held_out
from searchrl.errors import (
    ConfigError,
    EnvironmentFailure,
    PluginError,
    ProtocolFailure,
    SearchRLError,
    suggest,
)
from searchrl.plugins import Entry, Registry
from searchrl.plugins.parts import (
    Judged,
    Judges,
    fill_parts,
    find_judged,
    make_retriever_factory,
)
from searchrl.plugins.registry import describe_error
from searchrl.retrieval.indexes import IndexCache
from searchrl.retrieval.progress import OnProgress, listening
from searchrl.rewards.scorer import Scorer
from searchrl.tool_calls import STUCK_S, CallQueue, Pinned, Raised, Turn, watch

Env = gymnasium.Env[Any, Any]
T = TypeVar("T")


@dataclass(slots=True)
class TaskWorld:
    """One task of the run: where its episodes come from and how they are scored.

    `entry` is the environment's registration (its scripted policies among it), `owner` the plugin
    that made it; `retriever_owner` and `protocol_owner` are those of the other two. `protocol`
    raises `ProtocolFailure` when it fails.
    """

    name: str
    config: TaskConfig
    protocol: GuardedProtocol
    scorer: Scorer
    owner: str
    make_env: Callable[[], Env]
    entry: Entry
    retriever_owner: str = ""
    protocol_owner: str = ""
    timeout_s: float | None = None
    """How long one call of its environment may take in an episode."""
    not_drawing: set[str] = field(default_factory=set)
    """Who is not asked for drawings any more, because that did not return."""
    notes: tuple[str, ...] = ()
    """What its environment says that a user should read beside the figures."""
    levels: Mapping[Any, TaskWorld] = field(default_factory=dict)
    """Where its difficulty changes: the world of each difficulty. It itself is the last one."""
    has_indexes: bool = False
    """Whether the indexes that can be built before an episode are built."""
    judged: Judged | None = None
    """The judge that its components ask, if one does."""
    _idle: list[Pinned[Env]] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)

    def acquire(self) -> Pinned[Env]:
        """Take an idle environment instance, or one that is made when it is first called."""
        with suppress(IndexError):  # none, or another thread took the last one
            while True:
                if (env := self._idle.pop()).home.lives:
                    return env
        return Pinned(self.make_env, self.who("env"))

    def release(self, env: Pinned[Env]) -> None:
        """Give an instance back. One that hung or raised is dropped instead, never reused."""
        self._idle.append(env)

    def ask(self, fn: Callable[[Env], T]) -> T:
        """What `fn` says of an instance, in its thread, however long it takes."""
        env = self.acquire()
        answer = env.ask(fn)
        self.release(env)
        return answer

    def build_indexes(self, on_progress: OnProgress | None = None) -> None:
        """Build the indexes that its environment knows it needs; once, before any episode.

        Nothing is on the clock here: it may take as long as it takes. `on_progress` hears how far
        it is.

        Raises:
            RetrieverFailure: the retriever could not be made.
        """
        if self.has_indexes:
            return
        env = self.acquire()
        with listening(on_progress):
            env.ask(lambda env: _attribute(env, "build_indexes", lambda: None)())
        self.release(env)
        self.has_indexes = True
        for world in self.levels.values():
            world.build_indexes(on_progress)

    def num_tasks(self, split: str) -> int:
        """Number of tasks of a split.

        An environment without a split `validation` gets one: its last training tasks, which `train`
        then no longer has. So nothing that draws from `train` can ever meet them.

        Raises:
            ConfigError: if the env has none there.
            EnvironmentFailure: if it cannot say how many.
        """
        if split not in self._counts:
            self._counts[split] = self._count(split)
        return self._counts[split]

    def locate(self, split: str, index: int) -> tuple[str, int]:
        """The split and index under which the environment itself has a task."""
        if split == VALIDATION and not self.has_split(VALIDATION):
            return TRAIN, self.num_tasks(TRAIN) + index
        return split, index

    def look_at(self, split: str, index: int) -> Task | None:
        """The task of an index, without playing it; None if the environment does not describe it.

        Raises whatever its reset raises.
        """
        own_split, own_index = self.locate(split, index)
        options = {"split": own_split, "index": own_index}
        _, info = self.ask(lambda env: env.reset(seed=0, options=options))
        task = info.get("task")
        return task if isinstance(task, Task) else None

    def has_split(self, split: str) -> bool:
        """Whether the environment lists a split in its `splits`."""
        listed = self.ask(lambda env: _attribute(env, "splits"))
        return isinstance(listed, list | tuple) and split in listed

    def who(self, kind: str) -> str:
        """Who is named when its `env`, `retriever` or `protocol` fails: `env 'x' (plugin y)`."""
        name, owner = {
            "env": (self.name, self.owner),
            "retriever": (self.config.retriever.name, self.retriever_owner),
            "protocol": (self.config.protocol.name, self.protocol_owner),
        }[kind]
        return _who(kind, name, owner)

    @property
    def can_validate(self) -> bool:
        """Whether it has validation tasks: a single training task is not held out."""
        return self.has_split(VALIDATION) or self._num_own_tasks(TRAIN) > 1

    def _count(self, split: str) -> int:
        if split not in (TRAIN, VALIDATION) or self.has_split(VALIDATION):
            return self._num_own_tasks(split)
        total = self._num_own_tasks(TRAIN)
        held_out = num_held_out(total)
        if split == TRAIN:
            return total - held_out
        if not held_out:
            raise ConfigError(
                f"env '{self.name}' has no split 'validation', and its only training task is not "
                "held out for it; give it more training tasks"
            )
        return held_out

    def _num_own_tasks(self, split: str) -> int:
        """What the environment says of a split, checked."""
        try:
            count = operator.index(self.ask(lambda env: env.get_wrapper_attr("num_tasks")(split)))
        except SearchRLError:
            raise
        except (Exception, SystemExit) as error:  # a plugin's sys.exit() must not end the run
            raise EnvironmentFailure(
                f"{self.who('env')}: num_tasks({split!r}) must return how many tasks the split "
                f"has; {describe_error(error)}"
            ) from error
        if count < 1:
            raise ConfigError(f"env '{self.name}' has no tasks in split '{split}'")
        return count

    def script(self, name: str) -> ExpertFactory:
        """A scripted policy of the env by name.

        Raises:
            ConfigError: if the env has none of that name, or none at all.
        """
        scripts = self.entry.load_scripts()
        if not scripts:
            raise ConfigError(
                f"env '{self.name}' ({self.owner}) registers no scripted policy, so there is "
                "nothing to replay; give register_envs an `expert=`, or use --policy model"
            )
        if name not in scripts:
            raise ConfigError(
                f"env '{self.name}' has no scripted policy '{name}'.{suggest(name, scripts)} "
                "Name one with --policy scripted:NAME, or in sft.stages.0.mix"
            )
        return scripts[name]

    def can_open(self, kind: str) -> bool:
        """Whether a turn of the protocol can be committed to an action of `kind`."""
        return can_open(self.protocol, kind)

    def close(self) -> None:
        """Close every idle environment; one that fails to close is a warning."""
        for world in self.levels.values():
            if world is not self:
                world.close()
        with closing(CallQueue(self.timeout_s)) as queue:
            living = [one for one in self._idle if one.home.lives]
            calls = [one.call(queue, lambda env: env.close()) for one in living]
            queue.wait_for_all()
        self._idle.clear()
        for call in calls:
            if isinstance(call.result, Raised):
                what = describe_error(call.result.error)
                warnings.warn(f"{self.who('env')} failed to close: {what}", stacklevel=2)


def _attribute(env: Env, name: str, default: Any = ()) -> Any:
    """What an environment has under a name, wrapped or not."""
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else default


def _who(kind: str, name: str, owner: object) -> str:
    return f"{kind} '{name}' ({owner})"


def name_defaults(config: RunConfig, registry: Registry) -> RunConfig:
    """The config with what `auto` means for each task: its env's own protocol, reward, retriever.

    What the env registers none of is the default of all. Stored, it means the same wherever it is
    read.

    Raises:
        UnknownNameError: for an environment that nobody registers.
    """

    def named(task: TaskConfig) -> TaskConfig:
        own = registry.get("env", task.env.name)
        decided: dict[str, Any] = {}
        if task.protocol.name == AUTO:
            decided["protocol"] = task.protocol.model_copy(update={"name": own.protocol})
        if task.retriever.name == AUTO:
            decided["retriever"] = task.retriever.model_copy(update={"name": own.retriever})
        if task.reward == AUTO:
            decided["reward"] = own.reward
        return task.model_copy(update=decided)

    return config.model_copy(update={"tasks": [named(task) for task in config.tasks]})


def build_indexes(worlds: Iterable[TaskWorld], on_phase: Callable[[str, int, int], None]) -> None:
    """Build the indexes of all worlds; `on_phase` is an observer's `phase` (`index NAME: …`)."""
    for world in worlds:
        head = f"index {world.config.retriever.name}: "
        world.build_indexes(lambda doing, *counts, head=head: on_phase(head + doing, *counts))


def make_worlds(config: RunConfig, registry: Registry) -> list[TaskWorld]:
    """Build the worlds of all tasks of a run, and try the environment of each once.

    Raises:
        UnknownNameError, ExpressionError, ConfigError, DataError: whatever is wrong with one.
    """
    named = name_defaults(config, registry)
    turns: dict[str, Turn] = {}
    judges = Judges(registry)
    limits = (config.rollout.env_timeout_s or 0.0, config.rollout.reward_timeout_s or 0.0)
    watch(max(STUCK_S, *limits))
    return [_make_levels(task, named, registry, turns, judges) for task in named.tasks]


def make_protocol(config: TaskConfig, run: RunConfig, registry: Registry) -> TagProtocol:
    """The protocol of a task alone, for episodes that were played before.

    `config` must have no `auto` left (see `name_defaults`). Neither its environment nor its
    retriever is made, so their data need not be there.

    Raises:
        UnknownNameError: for a name that nobody registers.
    """
    return _make_protocol(config, run, registry)


def make_scorer(
    config: TaskConfig, run: RunConfig, registry: Registry, judges: Judges | None = None
) -> Scorer:
    """The scorer of a task alone; otherwise as `make_protocol`. Tasks may share their `judges`.

    Raises:
        UnknownNameError, ExpressionError: whatever is wrong with a name or an expression.
    """
    protocol = _make_protocol(config, run, registry)
    return build_scorer(config, run, registry, protocol, judges or Judges(registry))


def _make_protocol(config: TaskConfig, run: RunConfig, registry: Registry) -> GuardedProtocol:
    env_entry = registry.get("env", config.env.name)
    protocol_entry = registry.get("protocol", config.protocol.name)
    return GuardedProtocol(
        registry.make_protocol(env_entry, config.protocol.name, config.protocol.settings),
        str(protocol_entry),
        who=_who("protocol", config.protocol.name, protocol_entry.owner),
        # What the user wrote for a prompt is always in it.
        has_instruction=run.model.instructions or "instruction" in config.protocol.settings,
    )


def _make_levels(
    config: TaskConfig,
    run: RunConfig,
    registry: Registry,
    turns: dict[str, Turn],
    judges: Judges,
) -> TaskWorld:
    """The world of a task; where its difficulty changes, that of the last one with all others."""
    if config.difficulty is None:
        return _make_world(config, run, registry, turns, judges)
    levels: dict[Any, TaskWorld] = {}
    for _, value in stages_of(config.difficulty):
        env = Named(**{**config.env.model_dump(), "difficulty": value})
        own = config.model_copy(update={"env": env})
        levels[value] = levels.get(value) or _make_world(own, run, registry, turns, judges)
        last = levels[value]
    last.levels = levels
    return last


def _make_world(
    config: TaskConfig,
    run: RunConfig,
    registry: Registry,
    turns: dict[str, Turn],
    judges: Judges,
) -> TaskWorld:
    """A world. `turns`: of each retriever that takes one call at a time, whose turn it is."""
    env_entry = registry.get("env", config.env.name)
    protocol_entry = registry.get("protocol", config.protocol.name)
    protocol = _make_protocol(config, run, registry)
    retriever_entry = registry.get("retriever", config.retriever.name)
    ensure_is_read(config, env_entry, protocol)

    def make_retrievers(name: str, settings: Mapping[str, Any]) -> IndexCache:
        entry = registry.get("retriever", name)
        turn = None if entry.is_concurrent else turns.setdefault(entry.qualified, Turn())
        factory = make_retriever_factory(registry, name, settings)
        who = _who("retriever", name, entry.owner)
        guarded = GuardedRetrievers(factory, who, turn, run.rollout.env_timeout_s)
        return guarded.indexes(run.rollout.prompts_per_step)

    # Every environment instance shares them: the rollouts of a group search one index. They are
    # made at the first search; a wrong setting is reported now.
    retriever = make_retrievers(config.retriever.name, config.retriever.settings)
    scorer = build_scorer(config, run, registry, protocol, judges)
    # Now, so that a setting called `retriever` is refused by its name.
    env_settings = env_entry.ensure_settings(
        fill_parts(registry, env_entry, config.env.settings, make_retrievers)
    )

    def make_env() -> Env:
        env = env_entry.make(protocol=protocol, retriever=retriever, **env_settings)
        if not isinstance(env, gymnasium.Env):
            raise EnvironmentFailure(
                f"{env_entry}: expected its factory to return a gymnasium.Env, "
                f"got {type(env).__name__}"
            )
        return env

    world = TaskWorld(
        name=config.env.name,
        config=config,
        protocol=protocol,
        scorer=scorer,
        owner=str(env_entry.owner),
        make_env=make_env,
        entry=env_entry,
        retriever_owner=str(retriever_entry.owner),
        protocol_owner=str(protocol_entry.owner),
        timeout_s=run.rollout.env_timeout_s,
        judged=find_judged(registry, judges, config.judge, scorer.components),
    )
    try:
        world.notes = tuple(map(str, world.ask(lambda env: _attribute(env, "notes"))))
    except ProtocolFailure as error:  # an env asks its protocol for examples of turns
        raise PluginError(f"{protocol_entry}: {error}") from error
    return world
