"""Requests to a server and their cost, past or expected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of a client so far. `calls` counts every HTTP request, repeated ones too.

    `cached` counts requests that the cache answered, `failed` those that got no answer. `uncounted`
    are replies whose tokens the server did not say. `cost` is in the currency of the prices, None
    without prices.
    """

    calls: int = 0
    retries: int = 0
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    cost: float | None = None

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers."""
        return self.prompt_tokens + self.completion_tokens

    def describe(self) -> str:
        """Return the counts and the cost as one line."""
        parts = [
            f"{_count(self.calls, 'call')} ({self.retries} repeated)",
            f"{_count(self.cached, 'reply', 'replies')} from the cache",
        ]
        if self.tokens or not self.uncounted:
            parts.append(f"{self.tokens:,} tokens")
        if self.uncounted:
            uncounted = _count(self.uncounted, "reply", "replies")
            parts.append(f"{uncounted} whose tokens it did not count")
        if self.failed:
            parts.append(f"{_count(self.failed, 'request')} without an answer")
        if self.cost is not None:
            least = "at least " if self.uncounted else ""
            parts.append(f"cost {least}{self.cost:.4f}")
        return ", ".join(parts)

    def describe_estimate(self) -> str:
        """Return the expected calls, tokens and cost as one line."""
        cost = "" if self.cost is None else f", cost about {self.cost:.4f}"
        return f"about {_count(self.calls, 'call')}, {self.tokens:,} tokens{cost}"


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
