"""What was sent and spent, and the budget that ends it.

A call is counted when it is sent, tokens when the reply says them. So calls never exceed their
limit, tokens and cost by no more than the calls that were under way. A server that counts no tokens
cannot be held to a limit on them: nothing more is sent to it. Replies from the cache cost nothing.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from searchrl.config.endpoint import EndpointConfig
from searchrl.contracts import Traffic
from searchrl.errors import BudgetSpent


class Budget:
    """Counts what is spent and refuses what would come after the limit; safe to use from threads.

    `section` is where its settings stand, for messages: `endpoint`, `judge`.
    """

    def __init__(self, settings: EndpointConfig, section: str) -> None:
        self._settings = settings
        self._section = section
        self._lock = threading.Lock()
        self.traffic = self.estimate(0, 0, 0)

    def estimate(self, calls: int, prompt_tokens: int, completion_tokens: int) -> Traffic:
        """So much traffic, with its cost."""
        prices = (self._settings.prompt_price, self._settings.completion_price)
        cost = None
        if prices[0] is not None and prices[1] is not None:
            cost = (prompt_tokens * prices[0] + completion_tokens * prices[1]) / 1_000_000
        return Traffic(
            calls, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, cost=cost
        )

    def take_call(self, is_retry: bool) -> None:
        """Count a call that is about to be sent.

        Raises:
            BudgetSpent: if nothing may be sent any more; the call is not counted then.
        """
        with self._lock:
            spent, limits, section = self.traffic, self._settings, self._section
            for name, used, limit in (
                ("max_calls", spent.calls, limits.max_calls),
                ("max_tokens", spent.tokens, limits.max_tokens),
                ("max_cost", spent.cost, limits.max_cost),
            ):
                if limit is None or used is None:
                    continue
                if used >= limit:
                    raise BudgetSpent(
                        f"the budget of the {section} is used up: {name} = {limit:g}, {used:g} "
                        f"spent; raise it with --set {section}.{name}=…"
                    )
                if spent.uncounted and name != "max_calls":
                    raise BudgetSpent(
                        f"the {section} does not say how many tokens it used, so {name} = "
                        f"{limit:g} cannot be kept; bound the calls instead: "
                        f"--set {section}.max_calls=…"
                    )
            self.traffic = replace(
                spent, calls=spent.calls + 1, retries=spent.retries + int(is_retry)
            )

    def add(self, usage: tuple[int, int] | None) -> None:
        """Count the tokens of a reply that was sent for; None: the server did not count them."""
        if usage is None:
            self.count(uncounted=1)
            return
        more = self.estimate(0, *usage)
        with self._lock:
            spent = self.traffic
            self.traffic = replace(
                spent,
                prompt_tokens=spent.prompt_tokens + more.prompt_tokens,
                completion_tokens=spent.completion_tokens + more.completion_tokens,
                cost=None if spent.cost is None or more.cost is None else spent.cost + more.cost,
            )

    def count(self, *, cached: int = 0, failed: int = 0, uncounted: int = 0) -> None:
        """Count requests that the cache answered, that failed, or whose tokens nobody counts."""
        with self._lock:
            spent = self.traffic
            self.traffic = replace(
                spent,
                cached=spent.cached + cached,
                failed=spent.failed + failed,
                uncounted=spent.uncounted + uncounted,
            )
