"""The task world: one entry of `tasks` turned into objects the rollout driver can use.

Owns the environments, protocol, scorer and scripted policies of a task, and the pool of
environment instances. Speaks strings only; made by `worlds`.
"""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import gymnasium

from searchrl.config.sections import TaskConfig
from searchrl.contracts import TagProtocol
from searchrl.contracts.playing import ExpertFactory
from searchrl.core.episode import Task
from searchrl.engine.rollout.guarded import GuardedProtocol
from searchrl.envs.splits import TRAIN, VALIDATION, num_held_out
from searchrl.errors import ConfigError, EnvironmentFailure, ProtocolFailure
from searchrl.plugins import Entry
from searchrl.plugins.parts import Judged
from searchrl.plugins.registry import describe_error, raising_of
from searchrl.retrieval.progress import OnProgress, listening
from searchrl.rewards.scorer import Scorer
from searchrl.tool_calls import CallQueue, Pinned, Raised

Env = gymnasium.Env[Any, Any]
T = TypeVar("T")


@dataclass(eq=False)
class TaskWorld:
    """One task of the run: the source of its episodes, and their scorer.

    `entry` is the environment's registration. `who` are the names for messages of its `env`,
    `retriever` and `protocol`: `env 'x' (plugin y)`.
    """

    name: str
    config: TaskConfig
    protocol: GuardedProtocol
    scorer: Scorer
    who: Mapping[str, str]
    make_env: Callable[[], Env]
    entry: Entry
    timeout_s: float | None = None
    """Time limit of one call of its environment in an episode."""
    not_drawing: set[str] = field(default_factory=set)
    """Parts that are not asked for drawings any more, because that did not return."""
    notes: tuple[str, ...] = ()
    """Notes of its environment that a user should read beside the figures."""
    levels: Mapping[Any, TaskWorld] = field(default_factory=dict)
    """The world of each difficulty, where that changes. It itself is the last one."""
    has_indexes: bool = False
    """True once the indexes that can be built before an episode are built."""
    is_served: bool = False
    """True if its wrapper serves the policy to an agent, which nobody can make write a turn."""
    compacts: bool = False
    """True if its wrapper may begin another context (`contracts.compacting`)."""
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
        return Pinned(self.make_env, self.who["env"])

    def release(self, env: Pinned[Env]) -> None:
        """Give an instance back. One that hung or raised is dropped instead, never reused."""
        self._idle.append(env)

    def ask(self, fn: Callable[[Env], T]) -> T:
        """Return `fn(instance)`, called in the instance's thread, however long it takes."""
        env = self.acquire()
        answer = env.ask(fn)
        self.release(env)
        return answer

    def build_indexes(self, on_progress: OnProgress | None = None) -> None:
        """Build the indexes that its environment knows it needs; once, before any clock runs."""
        if self.has_indexes:
            return
        env = self.acquire()
        with listening(on_progress):
            env.ask(lambda env: attribute_of(env, "build_indexes", lambda: None)())
        self.release(env)
        self.has_indexes = True
        for world in self.levels.values():
            world.build_indexes(on_progress)

    def num_tasks(self, split: str) -> int:
        """Number of tasks of a split.

        An environment without a split `validation` gets one: its last training tasks, which `train`
        then no longer has. ConfigError if there are none, EnvironmentFailure if it cannot say.
        """
        if split not in self._counts:
            self._counts[split] = self._count(split)
        return self._counts[split]

    @cached_property
    def stops(self) -> tuple[str, ...]:
        """The strings that end a turn: those of the protocol, and of a wrapper that compacts."""
        more = self.ask(lambda env: getattr(env, "stops", ())) if self.compacts else ()
        return (*self.protocol.stops, *more)

    @cached_property
    def window(self) -> int | None:
        """Most tokens that the policy reads at once, as a wrapper that compacts has it."""
        return self.ask(lambda env: getattr(env, "window", None)) if self.compacts else None

    @cached_property
    def max_turns(self) -> int | None:
        """Most turns of an episode; None if the environment does not say."""
        limit = self.ask(lambda env: attribute_of(env, "max_turns", None))
        return limit if isinstance(limit, int) else None

    def locate(self, split: str, index: int) -> tuple[str, int]:
        """The split and index under which the environment itself has a task."""
        if split == VALIDATION and not self.has_split(VALIDATION):
            return TRAIN, self.num_tasks(TRAIN) + index
        return split, index

    def look_at(self, split: str, index: int) -> Task | None:
        """The task of an index, not played; None if the environment does not describe it."""
        own_split, own_index = self.locate(split, index)
        options = {"split": own_split, "index": own_index}
        _, info = self.ask(lambda env: env.reset(seed=0, options=options))
        task = info.get("task")
        return task if isinstance(task, Task) else None

    def has_split(self, split: str) -> bool:
        """Return True if the environment lists a split in its `splits`."""
        listed = self.ask(lambda env: attribute_of(env, "splits"))
        return isinstance(listed, list | tuple) and split in listed

    @property
    def can_validate(self) -> bool:
        """True if it has validation tasks: a single training task is not held out."""
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
        """The environment's own count of a split, checked."""
        what = f"num_tasks({split!r}) must return how many tasks the split has;"
        with raising_of(f"{self.who['env']}: {what}", EnvironmentFailure):
            count = operator.index(self.ask(lambda env: env.get_wrapper_attr("num_tasks")(split)))
        if count < 1:
            raise ConfigError(f"env '{self.name}' has no tasks in split '{split}'")
        return count

    def script(self, name: str) -> ExpertFactory:
        """A scripted policy of the env by name; see `Entry.load_script`."""
        script = self.entry.load_script(name)
        number_turn = getattr(self.protocol, "number_turn", None)
        return script if number_turn is None else _numbered(script, number_turn)

    def can_open(self, kind: str) -> bool:
        """Return True if a turn of its protocol can be committed to an action of `kind`."""
        return can_open(self.protocol, kind)

    def can_force(self, kind: str) -> bool:
        """Return True if its first turn can be made one: an agent's prompts are its own."""
        return not self.is_served and self.can_open(kind)

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
                warnings.warn(f"{self.who['env']} failed to close: {what}", stacklevel=2)


def attribute_of(env: Env, name: str, default: Any = ()) -> Any:
    """Return an attribute of an environment, wrapped or not."""
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else default


def describe_part(kind: str, name: str, owner: object) -> str:
    """Name of a part for messages: `env 'x' (plugin y)`."""
    return f"{kind} '{name}' ({owner})"


def can_open(protocol: TagProtocol, kind: str) -> bool:
    """Return True if a turn of a protocol can be committed to an action of `kind`."""
    try:
        protocol.opening(kind)
    except ValueError:
        return False
    except ProtocolFailure:  # reported by the episode that needs it
        return True
    return True


def _numbered(script: ExpertFactory, number_turn: Callable[[str, int], str]) -> ExpertFactory:
    """The scripted policy, whose turns have their numbers in the episode."""

    class Numbered:
        def __init__(self, *of_episode: Any) -> None:
            self._expert, self._numbers = script(*of_episode), itertools.count(1)

        def act(self, observation: str) -> str:
            return number_turn(self._expert.act(observation), next(self._numbers))

    return Numbered
