"""An environment of SearchRL that is played from outside, by calls of tools and a last text."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from searchrl import ConfigError, open_player
from searchrl.contracts import ANSWER, TOOL, Action, TokenBudget, ToolCall
from searchrl.testing import Says, play_episode

INSTRUCTION = (
    "Use the tools until you know enough. Then write the answer and nothing else, without a call."
)


def open_world(settings: Mapping[str, Any]) -> tuple[Any, TokenBudget]:
    """The world of settings such as those of `searchrl.train`, and how long observations may be."""
    with open_player({**settings, "policy": "scripted"}) as player:
        worlds = player.make_worlds()
        if len(worlds) > 1:
            raise ConfigError(f"tasks: expected one, not {len(worlds)}; make an adapter for each")
        return worlds[0], TokenBudget.words(player.config.rollout.max_observation_tokens)


class Episodes:
    """Episodes, one after another: `begin`, any `call`, `score`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._world, budget = _open_world(json.dumps(settings))
        self._protocol = self._world.protocol
        if self._protocol.name != "tool-call":
            raise ConfigError(f"protocol: expected tool-call, not {self._protocol.name}")
        self.tools: tuple[dict[str, Any], ...] = self._protocol.tools
        self._env = self._world.make_env()
        self._env.unwrapped.budget = budget

    def prompts(self, split: str) -> Iterator[tuple[int, str]]:
        """The index and the first message of each task of a split."""
        for index in range(self._world.num_tasks(split)):
            yield index, self.begin(split, index)

    def begin(self, split: str, index: int) -> str:
        """Begin the episode of a task; returns the first message to the model."""
        self.turns: list[str] = []
        self._is_over = False
        self._place = dict(zip(("split", "index"), self._world.locate(split, index), strict=True))
        return str(self._env.reset(seed=0, options=self._place)[0])

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; returns what it says. Nothing counts after the end of the episode."""
        if self._is_over:
            return "The episode is over."
        self.turns.append(self._protocol.render_turn(Action(TOOL, ToolCall(name, arguments))))
        told, _, terminated, truncated, _ = self._env.step(self.turns[-1])
        self._is_over = terminated or truncated
        text = str(told).strip()
        return text.removeprefix("<tool_response>").removesuffix("</tool_response>").strip()

    def score(self, text: str) -> Any:
        """Our scores, for which the turns are played once more; the last one is `text`.

        The answer is its `<answer>`, or all of it after its thoughts. Of the scores, `reward` is
        None if `unscored` says why.
        """
        if self._protocol.parse(text).kind != ANSWER:
            text = text.rpartition("</think>")[2].strip()
            text = text and self._protocol.render_turn(Action(ANSWER, text))
        turns = [*self.turns, text] if text else self.turns
        rest = {"max_turns": len(turns), **self._place}
        played = play_episode(self._env, Says(turns), self._protocol, **rest)
        return self._world.scorer.score(played)


@lru_cache
def _open_world(settings: str) -> tuple[Any, TokenBudget]:
    return open_world({"protocol": "tool-call", **json.loads(settings)})
