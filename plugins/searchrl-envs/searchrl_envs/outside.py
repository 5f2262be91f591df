"""An environment of SearchRL that is played from outside, by calls of tools and a last text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from searchrl import open_player
from searchrl.contracts import ANSWER, TOOL, Action, Episode, EpisodeTurn, TokenBudget, ToolCall

INSTRUCTION = (
    "Use the tools until you know enough. Then write the answer and nothing else, without a call."
)


class Played:
    """Episodes, one after another: `begin`, any `call`, `answer`, `score`.

    `settings` are those of `searchrl.train`, such as `{"env": "regulations", "reward": "em"}`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._world, budget = _make_world(json.dumps(settings))
        self._protocol = self._world.protocol
        self.tools: tuple[dict[str, Any], ...] = self._protocol.tools
        self._env = self._world.make_env()
        self._env.unwrapped.budget = budget

    def prompts(self, split: str) -> Iterator[tuple[int, str]]:
        """The index and the first message of each task of a split."""
        for index in range(self._world.num_tasks(split)):
            yield index, self.begin(split, index)

    def begin(self, split: str, index: int) -> str:
        """Begin the episode of a task; returns the first message to the model."""
        self._turns: list[EpisodeTurn] = []
        self._signals: dict[str, float] = {}
        self._stop = "eos"
        own_split, own_index = self._world.locate(split, index)
        prompt, info = self._env.reset(seed=0, options={"split": own_split, "index": own_index})
        self._task = info["task"]
        return str(prompt)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; returns what it says. Nothing counts after the end of the episode."""
        said = self._step(self._protocol.render_turn(Action(TOOL, ToolCall(name, arguments))))
        return said.strip().removeprefix("<tool_response>").removesuffix("</tool_response>").strip()

    def answer(self, text: str) -> None:
        """End the episode with the model's text: its one `<answer>`, or all after its thoughts."""
        if self._protocol.parse(text).kind != ANSWER:
            text = text.rpartition("</think>")[2].strip()
            text = text and self._protocol.render_turn(Action(ANSWER, text))
        if text:
            self._step(text)

    def score(self) -> Any:
        """Our scores: `reward` (None: see `unscored`), and by component `scores`."""
        texts = [turn.text for turn in self._turns]
        episode = Episode(
            self._task,
            tuple(self._turns),
            final_answer=self._protocol.final_answer(texts),
            format_score=self._protocol.format_score(texts),
            signals=self._signals,
            env_return=sum(turn.reward for turn in self._turns),
            stop_reason=self._stop,  # type: ignore[arg-type]  # its enum is not public
        )
        return self._world.scorer.score(episode)

    def _step(self, turn: str) -> str:
        if self._stop != "eos":
            return "The episode is over."
        said, reward, terminated, truncated, info = self._env.step(turn)
        self._signals |= info.get("signals", {})
        shown: dict[str, Any] = {"observation": said} | {
            key: tuple(info[key]) for key in ("passages", "ranks") if key in info
        }
        if terminated or truncated:  # no model reads the last observation
            self._stop, shown = "answered" if terminated else "turn_limit", {}
        self._turns.append(EpisodeTurn(turn, info["action"], reward=float(reward), **shown))
        return str(said)


@lru_cache
def _make_world(settings: str) -> tuple[Any, TokenBudget]:
    whole = {"protocol": "tool-call", **json.loads(settings), "policy": "scripted"}
    with open_player(whole) as player:
        (world,) = player.make_worlds()
        return world, TokenBudget.words(player.config.rollout.max_observation_tokens)
