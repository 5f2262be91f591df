"""The space of all texts, and the base of the environments in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from pydantic import Field

from searchrl.contracts import TagProtocol, TokenBudget
from searchrl.core.episode import ACT, ANSWER, SEARCH, TOOL, Action, Task, ToolCall
from searchrl.envs.splits import ensure_index, ensure_split
from searchrl.errors import ConfigError

AtLeastOne = Annotated[int, Field(ge=1)]


class TextSpace(gymnasium.spaces.Text):
    """All Unicode strings of at most `max_length` characters.

    Gymnasium's own `Text` draws random letters, which are never a turn of a protocol. Here
    `sample()` draws one of the example texts `turns`, which are no part of the space.
    `AsyncVectorEnv` takes it with `shared_memory=False`.
    """

    is_np_flattenable = False

    def __init__(
        self,
        max_length: int = 1 << 20,
        *,
        turns: Sequence[str] = ("",),
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(max_length, min_length=0, seed=seed)
        self.turns = tuple(turns)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Draw one example text; `mask` and `probability` have no meaning here."""
        return self.turns[int(self.np_random.integers(len(self.turns)))][: self.max_length]

    def contains(self, x: Any) -> bool:
        """True for a string that is short enough."""
        return isinstance(x, str) and len(x) <= self.max_length


def example_turns(protocol: TagProtocol) -> tuple[str, ...]:
    """Turns as a model might write them under `protocol`, whatever its actions, and broken ones."""
    turns = []
    for action in (
        Action(SEARCH, ("chess club", "lost property")),
        Action(TOOL, ToolCall("lookup", {"word": "hours"})),
        Action(ACT, "left"),
        Action(ANSWER, "16:45"),
    ):
        with suppress(ValueError):  # it writes no such action
            turns.append(protocol.render_turn(action, "Elm Hall schließt um 16:45."))
            turns.append(protocol.opening(action.kind) + "never closed")
    return (*turns, "Plain text without any tag.", "")


class TurnEnv(gymnasium.Env[str, str]):
    """An environment of numbered tasks, played in raw model turns up to `max_turns`.

    A subclass has `num_tasks`; its `reset` calls `choose` and `begin`, its `step` `begin_turn` and
    `end_turn`. `budget` bounds every observation; the rollout driver sets it to count the policy's
    tokens. `turns` are examples of turns, by default some of every action that the protocol has.
    """

    # Gymnasium warns about any rendering environment without a frame rate.
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012
    name: ClassVar[str]
    splits: tuple[str, ...] = ("train", "test")

    def __init__(
        self,
        protocol: TagProtocol,
        max_turns: int,
        *,
        turns: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:
        self.protocol = protocol
        self.max_turns = max_turns
        self.render_mode = render_mode
        self.budget: TokenBudget | None = None
        self.action_space = TextSpace(turns=turns or example_turns(protocol))
        self.observation_space = TextSpace(turns=(protocol.render_notice("Try again."),))
        self._task: Task | None = None
        self._num_turns = 0
        self._is_over = True
        self._transcript: list[str] = []

    def num_tasks(self, split: str) -> int:
        """The number of tasks of `split`; `ensure_split` names an unknown one."""
        raise NotImplementedError

    def ensure_split(self, split: object) -> str:
        """Return `split` if the env has it; raise `ConfigError` naming those it has."""
        return ensure_split(self.name, split, self.splits)

    def render(self) -> str | None:
        """The transcript so far, in mode "ansi"; nothing otherwise."""
        return "\n".join(self._transcript) if self.render_mode == "ansi" else None

    def choose(self, options: Mapping[str, Any]) -> tuple[str, int]:
        """The split and the index that `reset` was asked for; without an index, a drawn one."""
        split = self.ensure_split(options.get("split", self.splits[0]))
        total, index = self.num_tasks(split), options.get("index")
        if not total:
            raise ConfigError(f"env {self.name}: split '{split}' has no tasks")
        if index is None:
            index = int(self.np_random.integers(total))
        return split, ensure_index(self.name, split, index, total)

    def begin(self, task: Task, prompt: str) -> tuple[str, dict[str, Any]]:
        """Begin an episode; returns (prompt, {"task": Task})."""
        self._task, self._num_turns, self._is_over = task, 0, False
        self._transcript = [prompt]
        return prompt, {"task": task}

    def begin_turn(self) -> Task:
        """Count a turn; returns the task. `ResetNeeded` outside an episode."""
        if self._task is None or self._is_over:
            raise ResetNeeded(
                f"env {self.name}: step() was called outside an episode. Call reset() to begin one."
            )
        self._num_turns += 1
        return self._task

    def end_turn(self, turn: str, observation: str, is_over: bool, is_cut: bool = False) -> bool:
        """Take a turn into the transcript; returns whether the episode is truncated by it."""
        truncated = not is_over and (is_cut or self._num_turns >= self.max_turns)
        self._is_over = is_over or truncated
        self._transcript += [turn, observation] if observation else [turn]
        return truncated
