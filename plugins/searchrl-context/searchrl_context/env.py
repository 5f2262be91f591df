"""The wrapper `context`: what the policy read gives way to what it says about it, or to one line.

Owns when a context is full, what the next one begins with, and the counts of what went wrong. The
engine keeps the record: each context is a segment, and every token is trained where it was sampled.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

import gymnasium
from pydantic import Field

from searchrl import ConfigError
from searchrl.contracts import ANSWER, COMPACT, INVALID, Action, Context, Room

Mode = Literal["summary", "fold", "drop", "cut"]

SUMMARY = re.compile(
    r"\A[^<]*(?:<(\w+)>.*?</\1>[^<]*)?<summary>(?P<text>.*?)(?:</summary>\s*)?\Z", re.DOTALL
)
"""A summary, behind a thought or none. It is one too where another stop string ended the turn."""
FULL = "The context is full. "
REQUEST = "Write down what you need: <summary> … </summary>"
LINE = "(no longer shown)"
HEADING = "Summary of what was read before:"
HINT = "You may sum up what you read at any time: <summary> … </summary>"


class ContextEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps what the policy of `env` reads within a window.

    Args:
        env: the environment, of text.
        mode: `summary`: before the window is full, the policy is asked for a summary, and goes on
            with the question, the summary and the last turns; it may also write one unasked.
            `fold`: it is asked for a note behind every observation. `drop`: the oldest observations
            become one line. `cut`: the episode ends where the window is full.
        window: most tokens that the policy reads at once; None: `rollout.max_total_tokens`.
        keep: last turns that stay word for word, with their observations.
        max_summaries: summaries of an episode; a further one ends it.
        explain: tell the policy in the prompt that it may write a summary.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        mode: Mode = "summary",
        window: Annotated[int, Field(ge=64)] | None = None,
        keep: Annotated[int, Field(ge=0)] = 1,
        max_summaries: Annotated[int, Field(ge=1)] = 8,
        explain: bool = True,
    ) -> None:
        super().__init__(env)
        if not env.has_wrapper_attr("protocol"):
            raise ConfigError("wrapper context: this environment has no protocol that reads turns")
        self._protocol = env.get_wrapper_attr("protocol")
        self._mode, self._keep, self._most = mode, keep, max_summaries
        self.window = window
        self.stops = ("</summary>",) if mode in ("summary", "fold") else ()
        self._hint = f"\n{HINT}" if explain and self.stops else ""
        self._room = Room(0, 1 << 30, 0, len)
        self._budget: object = None
        self._begin("")

    @property
    def max_turns(self) -> int | None:
        """Most turns of an episode: those of the environment, and the summaries."""
        has_limit = self.env.has_wrapper_attr("max_turns")
        limit: int | None = self.env.get_wrapper_attr("max_turns") if has_limit else None
        return limit and limit + (self._most + 1) * bool(self.stops)

    def measure(self, room: Room) -> None:
        """Take the room that is left; called before every step."""
        self._room = room

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of the environment."""
        inner, asked = self.env.unwrapped, self._ask()
        budget = getattr(inner, "budget", None)
        if self._mode == "fold" and budget is not None and budget is not self._budget:
            # A request stands behind the observation.
            left = budget.max_tokens - budget.count(asked) - 2  # of white space that is joined
            inner.budget = self._budget = replace(budget, max_tokens=left)  # type: ignore[attr-defined]
        prompt, info = self.env.reset(**given)
        prompt += self._hint
        self._begin(prompt)
        return prompt, info

    def _begin(self, prompt: str) -> None:
        self._prompt, self._number = prompt, -1
        self._shown: list[tuple[int, str]] = []
        """Turns of this context with their observations; those of summaries are not in it."""
        self._waiting: str | None = None
        """Observation that is shown behind the summary that was asked for."""
        self._notes: list[str] = []
        names = "summaries", "summary_words", "summary_empty", "summary_copied"
        self._signals = dict.fromkeys((*names, "summary_exhausted"), 0.0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play a turn in the environment, or compact."""
        self._number += 1
        written = SUMMARY.match(action) if self.stops else None
        is_answer = self._protocol.parse(action).kind == ANSWER
        if written or (self._waiting is not None and not is_answer):
            return self._compact(written)
        self._waiting = None
        observation, earned, terminated, truncated, info = self.env.step(action)
        reward = float(earned)
        info = {**info, "signals": {**info.get("signals", {}), **self._signals}}
        if terminated or truncated or self._mode == "cut":
            return observation, reward, terminated, truncated, info
        self._shown.append((self._number, observation))
        if self._mode == "drop" and not self._fits(observation) and (context := self._drop()):
            return observation, reward, False, False, {**info, "context": context}
        if self._mode == "fold":
            self._waiting = ""
            return observation + self._ask(), reward, False, False, info
        if self._mode == "summary" and not self._fits(observation):
            self._waiting = observation
            return self._ask(), reward, False, False, info
        return observation, reward, False, False, info

    def _ask(self) -> str:
        full = "" if self._mode == "fold" else FULL
        return str(self._protocol.render_notice(full + REQUEST))

    def _left(self) -> int:
        """Tokens that are left in the window, once a summary could be asked for and written."""
        room = self._room
        asked = room.max_turn_tokens + room.count(self._ask()) if self.stops else 0
        return room.max_tokens - room.num_tokens - room.max_turn_tokens - asked

    def _fits(self, observation: str) -> bool:
        return self._room.count(observation) <= self._left()

    def _drop(self) -> Context | None:
        """The same turns, where the oldest observations are a line each; None: they all are."""
        before, line = list(self._shown), self._protocol.render_notice(LINE)
        count = self._room.count
        left = self._left() - count(self._shown[-1][1])
        for place in range(len(self._shown) - max(1, self._keep)):
            number, text = self._shown[place]
            if left < 0 and text != line:
                left += count(text) - count(line)
                self._shown[place] = number, line
        kept = [part for turn in self._shown for part in turn]
        return Context(self._prompt, tuple(kept[:-1]), "drop") if self._shown != before else None

    def _compact(
        self, written: re.Match[str] | None
    ) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Begin another context with the summary; without one, it begins with nothing."""
        text = written["text"].strip() if written else ""
        observation, self._waiting = self._waiting or "", None
        signals = self._signals
        signals["summaries"] += 1
        signals["summary_words"] += len(text.split())
        signals["summary_empty"] += not text
        signals["summary_copied"] += bool(text) and text in self._notes
        is_over = signals["summaries"] > self._most
        signals["summary_exhausted"] = float(is_over)
        self._notes = [*self._notes, text] if self._mode == "fold" else [text]
        self._shown = self._shown[-self._keep :] if self._keep else []
        kept = [part for turn in self._shown for part in turn]
        if kept and observation:
            del kept[-1]  # it is shown last
        notes = "\n".join(map(self._protocol.neutralise, self._notes))
        context = Context(f"{self._prompt}\n{HEADING}\n{notes}", tuple(kept), self._mode)
        kind, why = (COMPACT, "") if written else (INVALID, "A summary was asked for.")
        info = {"action": Action(kind, text or None, why), "signals": dict(signals)}
        return observation, 0.0, False, is_over, info if is_over else {**info, "context": context}
