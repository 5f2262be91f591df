"""An environment of another library as one of text: the part that all of them share."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from threading import Thread
from typing import Any, NamedTuple

from searchrl import ConfigError
from searchrl.contracts import ANSWER, INVALID, SEARCH, TOOL, Action, TagProtocol, Task, ToolCall
from searchrl.envs import TurnEnv


def need(env: str, library: str) -> None:
    """Raise ConfigError with the remedy if the library of an environment is not installed."""
    if find_spec(library.replace("-", "_")) is None:
        raise ConfigError(
            f"env {env} needs the library {library}, which is not installed; "
            f"pip install 'searchrl-envs[{library}]'"
        )


def close_later(thing: Any) -> None:
    """Close a session or an environment without waiting: it may hang, or still be at work."""
    Thread(target=thing.close, daemon=True).start()


class Reply(NamedTuple):
    """The environment's reply to a turn."""

    text: str = ""
    reward: float = 0.0
    is_over: bool = False
    signals: Mapping[str, float] = {}


class ForeignEnv(TurnEnv):
    """Numbered tasks, played in raw model turns; of listed `tasks`, every fifth is for tests.

    A subclass begins an episode (`_begin`), replies to its turns and may add to the last reply.
    """

    splits: tuple[str, ...] = ("train", "test", "validation")
    signals: Mapping[str, float] = {}  # of every turn
    sample = Action(TOOL, ToolCall("look"))  # the protocol must be able to write it

    def __init__(
        self,
        protocol: TagProtocol,
        name: str,
        max_turns: int,
        num_tasks: int = 0,
        tasks: Sequence[Any] = (),
    ) -> None:
        try:
            protocol.render_turn(self.sample)
        except ValueError as error:
            told = f"env {name} needs another protocol than '{protocol.name}': {error}"
            raise ConfigError(f"{told}; leave out --protocol") from error
        super().__init__(protocol, max_turns)
        self.name = name  # type: ignore[misc]  # of other environments, it is the class's
        train = [task for place, task in enumerate(tasks) if place % 5 != 4]
        self._tasks = {"train": train, "test": tasks[4::5]}
        if tasks:
            self.splits = tuple(split for split, part in self._tasks.items() if part)
        self._num_tasks = num_tasks

    @abstractmethod
    def _begin(self, split: str, index: int) -> tuple[Task, str]:
        """Begin a task; returns it and the first message to the model."""

    @abstractmethod
    def _play(self, action: Action) -> Reply:
        """Reply to a turn that was read. A search is the call of a tool of that name."""

    def _refuse(self, action: Action) -> Reply:
        return Reply(action.reason)

    def _end(self, reply: Reply) -> Reply:
        return reply

    def num_tasks(self, split: str) -> int:
        """The number of tasks of a split."""
        self.ensure_split(split)
        return self._num_tasks or len(self._tasks[split])

    def seed_of(self, split: str, index: int) -> int:
        """A seed that no other task of any split has."""
        return len(self.splits) * index + self.splits.index(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin the task of `options` (`split`, `index`); returns (prompt, {"task": Task})."""
        super().reset(seed=seed)
        return self.begin(*self._begin(*self.choose(options or {})))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one raw model turn."""
        task = self.begin_turn()
        parsed = call = self.protocol.parse(action)
        if parsed.kind == SEARCH:
            several = len(parsed.queries) > 1
            given = {"queries": [*parsed.queries]} if several else {"query": parsed.queries[0]}
            call = Action(TOOL, ToolCall(SEARCH, given))
        reply = (self._refuse if parsed.kind == INVALID else self._play)(call)
        shown = self.protocol.render_notice(reply.text, self.budget) if reply.text else ""
        is_cut = self.end_turn(action, shown, reply.is_over)
        if reply.is_over or is_cut:
            reply = self._end(reply)
        info = {"task": task, "action": parsed, "signals": {**self.signals, **reply.signals}}
        return shown, reply.reward, reply.is_over, is_cut, info


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
