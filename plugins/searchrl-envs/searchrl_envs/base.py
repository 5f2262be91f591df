"""An environment of another library as one of text: the part that all of them share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded

from searchrl import ConfigError
from searchrl.contracts import (
    ANSWER,
    INVALID,
    SEARCH,
    TOOL,
    Action,
    TagProtocol,
    Task,
    TokenBudget,
    ToolCall,
)
from searchrl.envs import TextSpace, ensure_index, ensure_split, example_turns


def need(env: str, module: str, extra: str) -> None:
    """Raise ConfigError with the remedy if the library of an environment is not installed."""
    if find_spec(module) is None:
        raise ConfigError(
            f"env {env} needs the library {extra}, which is not installed; "
            f"pip install 'searchrl-envs[{extra}]'"
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """The environment's reply to a turn."""

    text: str = ""
    reward: float = 0.0
    is_over: bool = False
    signals: dict[str, float] = field(default_factory=dict)


class ForeignEnv(gymnasium.Env[str, str]):
    """Numbered tasks, played in raw model turns.

    A subclass begins an episode (`begin`) and replies to its turns (`play`, `refuse`).
    """

    splits: tuple[str, ...] = ("train", "test", "validation")
    sample = Action(TOOL, ToolCall("look"))  # the protocol must be able to write it

    def __init__(
        self, protocol: TagProtocol, name: str, *, max_turns: int, num_tasks: int = 10_000
    ) -> None:
        try:
            protocol.render_turn(self.sample)
        except ValueError as error:
            told = f"env {name} needs another protocol than '{protocol.name}': {error}"
            raise ConfigError(f"{told}; leave out --protocol") from error
        self.protocol, self.name, self.max_turns = protocol, name, max_turns
        self.budget: TokenBudget | None = None  # how long an observation may be: set by who plays
        self.action_space = TextSpace(turns=example_turns(protocol))
        self.observation_space = TextSpace()
        self._num_tasks = num_tasks
        self._tasks: Mapping[str, Sequence[Any]] = {}  # by split, if they are listed
        self._turns_left = 0
        self.task: Task | None = None

    @abstractmethod
    def begin(self, split: str, index: int) -> tuple[Task, str]:
        """Begin a task; returns it and the first message to the model."""

    @abstractmethod
    def play(self, action: Action) -> Reply:
        """Reply to a turn that was read. A search is the call of a tool of that name."""

    def refuse(self, action: Action) -> Reply:
        """Reply to a turn that cannot be read: with the reason."""
        return Reply(action.reason)

    def num_tasks(self, split: str) -> int:
        """The number of tasks of a split."""
        ensure_split(self.name, split, self.splits)
        return len(self._tasks[split]) if self._tasks else self._num_tasks

    def seed_of(self, split: str, index: int) -> int:
        """A seed that no other task of any split has."""
        return len(self.splits) * index + self.splits.index(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin the task of `options` (`split`, `index`); returns (prompt, {"task": Task})."""
        super().reset(seed=seed)
        given = options or {}
        split = ensure_split(self.name, given.get("split", self.splits[0]), self.splits)
        total = self.num_tasks(split)
        index = given.get("index", int(self.np_random.integers(total)))
        self.task, prompt = self.begin(split, ensure_index(self.name, split, index, total))
        self._turns_left = self.max_turns
        return prompt, {"task": self.task}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one raw model turn."""
        if not self._turns_left:
            raise ResetNeeded(f"env {self.name}: call reset() before step(), and after an episode")
        parsed = self.protocol.parse(action)
        reply = (self.refuse if parsed.kind == INVALID else self.play)(_as_call(parsed))
        self._turns_left = 0 if reply.is_over else self._turns_left - 1
        shown = self.protocol.render_notice(reply.text, self.budget) if reply.text else ""
        truncated = not reply.is_over and not self._turns_left
        info = {"task": self.task, "action": parsed, "signals": reply.signals}
        return shown, reply.reward, reply.is_over, truncated, info


def _as_call(action: Action) -> Action:
    if action.kind != SEARCH:
        return action
    several = len(action.queries) > 1
    given = {"queries": [*action.queries]} if several else {"query": action.queries[0]}
    return Action(TOOL, ToolCall(SEARCH, given))


class Expert:
    """Makes the calls of a task, if it lists some, then gives its answer. ConfigError: none."""

    def __init__(self, env: Any, task: Task, protocol: TagProtocol) -> None:
        if not task.answers:
            raise ConfigError(f"env {task.env} gives no answer for {task.id}, so it has no expert")
        actions = [Action(TOOL, call) for call in task.meta.get("calls", ())]
        actions.append(Action(ANSWER, task.answers[0]))
        self._turns = [protocol.render_turn(one, "This is the next step.") for one in actions]

    def act(self, observation: str) -> str:
        """The next turn, up to the answer."""
        return self._turns.pop(0)
