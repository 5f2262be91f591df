"""The budget of a client: how many calls, tokens and how much money may be spent, and were.

Owns the counts and the refusal. A call is counted when it is sent, tokens when the reply says them.
So calls never exceed their limit, tokens and cost by no more than the calls that were under way. A
server that counts no tokens cannot be held to a limit on them: nothing more is sent to it then.
Replies from the cache cost nothing. Safe to use from several threads. Caller: `client`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from searchrl.endpoints.exchange import Traffic, Usage
from searchrl.errors import BudgetSpent

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits; None: no limit. Prices are per million tokens, in any one currency."""

    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    prompt_price: float | None = None
    completion_price: float | None = None


class Budget:
    """Counts what is spent and refuses what would come after the limit.

    `section` is where its settings stand, for messages: `endpoint`, `judge`.
    """

    def __init__(self, allowance: Allowance | None = None, section: str = "endpoint") -> None:
        self.allowance = allowance = allowance or Allowance()
        self._section = section
        has_prices = allowance.prompt_price is not None or allowance.completion_price is not None
        self._traffic = Traffic(cost=0.0 if has_prices else None)
        self._lock = threading.Lock()

    @property
    def traffic(self) -> Traffic:
        """What was spent so far."""
        with self._lock:
            return self._traffic

    def take_call(self, *, is_retry: bool) -> None:
        """Count a call that is about to be sent.

        Raises:
            BudgetSpent: if nothing may be sent any more; the call is not counted then.
        """
        with self._lock:
            spent, limits = self._traffic, self.allowance
            tokens = spent.prompt_tokens + spent.completion_tokens
            for name, used, limit in (
                ("max_calls", spent.calls, limits.max_calls),
                ("max_tokens", tokens, limits.max_tokens),
                ("max_cost", spent.cost, limits.max_cost),
            ):
                if limit is None or used is None:
                    continue
                if used >= limit:
                    raise BudgetSpent(
                        f"the budget of the {self._section} is used up: {name} = {limit:g}, "
                        f"{used:g} spent; raise it with --set {self._section}.{name}=…"
                    )
                if spent.uncounted and name != "max_calls":
                    raise BudgetSpent(
                        f"the {self._section} does not say how many tokens it used, so {name} = "
                        f"{limit:g} cannot be kept; bound the calls instead: "
                        f"--set {self._section}.max_calls=…"
                    )
            self._traffic = replace(
                spent, calls=spent.calls + 1, retries=spent.retries + int(is_retry)
            )

    def cost_of(self, usage: Usage) -> float | None:
        """What so many tokens cost; None if there are no prices."""
        limits = self.allowance
        if limits.prompt_price is None and limits.completion_price is None:
            return None
        cost = usage.prompt_tokens * (limits.prompt_price or 0.0)
        return (cost + usage.completion_tokens * (limits.completion_price or 0.0)) / _MILLION

    def add(self, usage: Usage | None) -> None:
        """Count the tokens of a reply that was sent for; None: the server did not count them."""
        with self._lock:
            spent = self._traffic
            if usage is None:
                self._traffic = replace(spent, uncounted=spent.uncounted + 1)
                return
            more = self.cost_of(usage)
            cost = None if spent.cost is None or more is None else spent.cost + more
            self._traffic = replace(
                spent,
                prompt_tokens=spent.prompt_tokens + usage.prompt_tokens,
                completion_tokens=spent.completion_tokens + usage.completion_tokens,
                cost=cost,
            )

    def count(self, *, cached: int = 0, failed: int = 0, unkept: int = 0, fault: str = "") -> None:
        """Count requests that the cache answered, or could not keep (`fault`), or that failed."""
        with self._lock:
            spent = self._traffic
            self._traffic = replace(
                spent,
                cached=spent.cached + cached,
                failed=spent.failed + failed,
                unkept=spent.unkept + unkept,
                fault=spent.fault or fault,
            )
