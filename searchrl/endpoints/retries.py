"""Which failed calls are repeated, and how long to wait before.

Owns the rule: time-outs, lost connections and the statuses of a server that is busy or broken are
repeated; what the server says about the request itself is not. The wait is exponential backoff with
full jitter (M. Brooker, AWS Architecture Blog, 2015), or what the server asks for in `Retry-After`.
Callers: `sending` and `transport`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed."""

HOPELESS = frozenset({401, 402, 403, 404, 405})
"""Statuses that every other request would get, too: the key, the bill or the address is wrong."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a call is repeated (`max_retries`), and the waits between, in seconds.

    `max_wait_s` bounds our own waits, `max_asked_s` those that a server asks for.
    """

    max_retries: int = 4
    first_wait_s: float = 0.5
    max_wait_s: float = 30.0
    max_asked_s: float = 120.0

    def wait_s(self, number: int, asked_s: float | None = None) -> float | None:
        """How long to wait before repetition `number` (from 0); `asked_s` is the server's wish.

        None: it asks for so long that nobody waits. To come back earlier would be refused again.
        """
        if asked_s is not None:
            return max(0.0, asked_s) if asked_s <= self.max_asked_s else None
        return random.uniform(0.0, min(self.max_wait_s, self.first_wait_s * 2.0**number))


def read_retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that a server asks to wait (RFC 9110, 10.2.3: seconds or a date); None: nothing."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    with suppress(ValueError):
        return None if math.isnan(seconds := float(value)) else seconds
    with suppress(ValueError, TypeError):
        return (parsedate_to_datetime(value) - (now or datetime.now(UTC))).total_seconds()
    return None
