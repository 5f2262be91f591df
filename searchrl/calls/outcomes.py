"""What becomes of a call: it returned, it raised, or it did not come back in time.

Owns the three records, and no behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from searchrl.errors import SearchRLError

T = TypeVar("T")


class DeadlineExceeded(SearchRLError):
    """A call did not return in time. `where` is the stack at which it was found hanging.

    `owner` is who hung: whom the call was `inside` of, or else whose call it was.
    """

    def __init__(self, owner: str, timeout_s: float, where: str = "") -> None:
        super().__init__(f"{owner} did not return within {timeout_s:g} s")
        self.owner = owner
        self.timeout_s = timeout_s
        self.where = where

    def again(self) -> DeadlineExceeded:
        """The same for another one that waited for this call: an error is raised once."""
        return DeadlineExceeded(self.owner, self.timeout_s, self.where)


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """A call came back with a value."""

    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    """A call raised, or missed its deadline (`DeadlineExceeded`)."""

    error: BaseException
