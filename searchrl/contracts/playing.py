"""Contracts of playing an episode: tag protocols, token budgets, drawers and scripted policies.

Owns what sees the words of an episode. An environment itself is a `gymnasium.Env`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from searchrl.core.drawing import Drawing
from searchrl.core.episode import Action, Episode, Passage, Task


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """Limit of an observation: at most `max_tokens`, as `count` measures them.

    `cut(text, n)` returns the longest prefix of `text` of at most n tokens. The rollout driver
    passes the policy's tokenizer in; without one, `words()` counts white-space words.
    """

    max_tokens: int
    count: Callable[[str], int]
    cut: Callable[[str, int], str]

    def fit(self, text: str) -> str:
        """The text, cut to the limit where it is longer."""
        return text if self.count(text) <= self.max_tokens else self.cut(text, self.max_tokens)

    @staticmethod
    def words(max_tokens: int) -> TokenBudget:
        """A budget in white-space separated words, for use without a tokenizer."""

        def cut(text: str, limit: int) -> str:
            pieces = text.split(" ")
            return text if len(pieces) <= limit else " ".join(pieces[: max(limit, 0)])

        return TokenBudget(max_tokens, lambda text: len(text.split(" ")) if text else 0, cut)


@runtime_checkable
class TagProtocol(Protocol):
    """Owns the tags: prompt text, stop strings, parser, observation wrapping, format verdict.

    One that counts turns has three things more: `number_turn(text, number)` (a turn of
    `render_turn` with its number in the episode, from 1), `max_tries` (invalid turns in a row after
    which an episode is over) and `min_format` (the share of turns that has to be well-formed before
    rewards are of use).
    """

    name: str
    instruction: str
    stops: tuple[str, ...]

    def parse(self, text: str) -> Action:
        """Read one model turn. Total: never raises on model text."""

    def final_answer(self, turns: Sequence[str]) -> str | None:
        """The answer if the model's turns hold exactly one complete answer block, else None."""

    def format_score(self, turns: Sequence[str]) -> float:
        """The format verdict on the model-written turns: 1 valid, 0.5 answer only, 0 otherwise."""

    def render_observation(
        self, passages: Sequence[Passage], budget: TokenBudget | None = None
    ) -> str:
        """Wrap passages for the model; truncates the passages first, then wraps."""

    def render_notice(self, text: str, budget: TokenBudget | None = None) -> str:
        """Wrap a message of the environment (say, after an invalid turn) for the model.

        Truncates the message first, then wraps.
        """

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the turn that parses to `action`: for experts, samples and demonstrations."""

    def opening(self, kind: str) -> str:
        """Text that commits a turn to an action of `kind` (up to and with its opening tag).

        Raises ValueError if no turn of this protocol holds an action of that kind.
        """

    def neutralise(self, text: str) -> str:
        """Make every protocol tag inside foreign text visibly harmless."""


@runtime_checkable
class Drawer(Protocol):
    """A protocol, environment or reward that draws rollouts; optional.

    Pure: a function of the finished episode and of nothing else.
    """

    def draw_episode(self, episode: Episode) -> Sequence[Drawing]:
        """Return the drawings of an episode, shown beside its tokens; `[]` for none."""


class Expert(Protocol):
    """A scripted policy for one episode: sees what the model would see, writes raw turns."""

    def act(self, observation: str) -> str:
        """Return the next turn. The first observation is the environment's prompt."""


ExpertFactory = Callable[[Any, Task, TagProtocol], Expert]
"""`expert(env, task, protocol) -> Expert`: the scripted policy for one episode."""
