"""The task world: one entry of `tasks` turned into objects the rollout driver can use.

Owns the environments, protocol, scorer and scripted policies of a task, and the pool of
environment instances. Speaks strings only. Built by `train`, `evaluate`, `sft` and `play` from a
config and a plugin registry; everything that can be wrong with names, expressions or data files
is found here, before anything starts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from searchrl.config import RunConfig, TaskConfig
from searchrl.contracts import ExpertFactory, Retriever, TagProtocol
from searchrl.core.episode import Passage
from searchrl.errors import ConfigError, EnvironmentFailure, suggest
from searchrl.plugins import Entry, Registry
from searchrl.rewards.expression import RewardSchedule
from searchrl.rewards.scorer import Scorer

_CORPORA_KEPT = 512


class _SharedRetriever:
    """A retriever factory that builds one index per distinct corpus and keeps the latest ones.

    Every environment instance of a world shares it: the rollouts of a group search one index.
    Instances that ask for one corpus at the same moment wait for one index, not for one each.
    """

    def __init__(self, factory: Callable[..., Retriever], settings: dict[str, Any]) -> None:
        self._factory = factory
        self._settings = settings
        self._built: OrderedDict[int, tuple[Sequence[Passage], Retriever]] = OrderedDict()
        self._building: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()

    def __call__(self, passages: Sequence[Passage]) -> Retriever:
        key = hash(tuple(passages))
        with self._lock:
            turn = self._building.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                built = self._built.get(key)
            # Outside of `_lock`: other corpora are not kept waiting.
            built = built or (passages, self._factory(passages, **self._settings))
            with self._lock:
                self._built[key] = built
                self._built.move_to_end(key)
                self._building.pop(key, None)
                if len(self._built) > _CORPORA_KEPT:
                    self._built.popitem(last=False)
        return built[1]


@dataclass(slots=True)
class TaskWorld:
    """One task of the run: where its episodes come from and how they are scored.

    `entry` is the environment's registration (its scripted policies among it), `owner` the plugin
    that made it, `retriever_owner` the one that made the retriever.
    """

    name: str
    config: TaskConfig
    protocol: TagProtocol
    scorer: Scorer
    owner: str
    make_env: Callable[[], gymnasium.Env[Any, Any]]
    entry: Entry
    retriever_owner: str = ""
    _idle: list[gymnasium.Env[Any, Any]] = field(default_factory=list)

    def acquire(self) -> gymnasium.Env[Any, Any]:
        """Take an idle environment instance, or make one."""
        with suppress(IndexError):  # none, or another thread took the last one
            return self._idle.pop()
        return self.make_env()

    def release(self, env: gymnasium.Env[Any, Any]) -> None:
        """Give an instance back. One that hung or raised is dropped instead, never reused."""
        self._idle.append(env)

    def num_tasks(self, split: str) -> int:
        """Number of tasks of a split.

        Raises:
            ConfigError: if the env has none there.
        """
        env = self.acquire()
        count = int(env.get_wrapper_attr("num_tasks")(split))
        self.release(env)
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
            known = suggest(name, scripts)
            raise ConfigError(f"env '{self.name}' has no scripted policy '{name}'.{known}")
        return scripts[name]

    def close(self) -> None:
        """Close every idle environment."""
        while self._idle:
            self._idle.pop().close()


def make_world(config: TaskConfig, registry: Registry, reward_timeout_s: float | None) -> TaskWorld:
    """Build one task's world and try its environment once.

    Raises:
        UnknownNameError, ExpressionError, ConfigError, DataError: whatever is wrong with it.
    """
    env_entry = registry.get("env", config.env.name)
    protocol = registry.get("protocol", config.protocol.name).make(**config.protocol.settings)
    retriever_entry = registry.get("retriever", config.retriever.name)
    # It is made when somebody searches; a misspelt setting should not wait until then.
    retriever_entry.ensure_settings(config.retriever.settings)
    retriever = _SharedRetriever(retriever_entry.load(), config.retriever.settings)
    schedule = RewardSchedule.parse(
        config.reward
        if isinstance(config.reward, str)
        else [stage.model_dump() for stage in config.reward],
        registry.spellings("reward"),
    )
    names = dict.fromkeys([*schedule.names, *config.metrics])
    entries = {name: registry.get("reward", name) for name in names}
    scorer = Scorer(
        {name: entry.make() for name, entry in entries.items()},
        schedule,
        metrics=config.metrics,
        timeout_s=reward_timeout_s,
        owners={name: str(entry.owner) for name, entry in entries.items()},
    )

    def make_env() -> gymnasium.Env[Any, Any]:
        env = env_entry.make(protocol=protocol, retriever=retriever, **config.env.settings)
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
    )
    world.release(make_env())
    return world


def make_worlds(config: RunConfig, registry: Registry) -> list[TaskWorld]:
    """Build the worlds of all tasks of a run."""
    return [make_world(task, registry, config.rollout.reward_timeout_s) for task in config.tasks]
