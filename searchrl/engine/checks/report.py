"""Verdicts of checks, and the report that holds them all. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from searchrl.core.excerpt import Excerpt
from searchrl.errors import CheckError


class State(StrEnum):
    """Outcome of a check."""

    PASSED = "passed"
    WARNED = "warned"
    """It holds no run up, but figures or learning may suffer."""
    FAILED = "failed"
    """A run would train on garbage, or could not train at all."""
    SKIPPED = "not applicable"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one check, in words, with what was measured.

    `fix` says what to do about a failure or a warning; `excerpt` shows the tokens around it. The
    doctor fills in the last three.
    """

    state: State
    says: str
    fix: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    excerpt: Excerpt | None = None
    name: str = ""
    question: str = ""
    took_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        excerpt = None if self.excerpt is None else self.excerpt.to_dict()
        told = {"name": self.name, "question": self.question}
        return told | asdict(self) | {"excerpt": excerpt}


@dataclass(frozen=True, slots=True)
class Report:
    """All checks of one run, in order."""

    checks: tuple[Verdict, ...]
    took_s: float

    def of(self, state: State) -> list[Verdict]:
        """The checks that ended in a state."""
        return [one for one in self.checks if one.state is state]

    @property
    def is_good(self) -> bool:
        """True if none failed."""
        return not self.of(State.FAILED)

    @property
    def summary(self) -> str:
        """Counts of the outcomes, and the time, in one line."""
        counts = ((len(self.of(state)), state) for state in State)
        summary = ", ".join(f"{count} {state}" for count, state in counts if count)
        return f"{summary} ({self.took_s:.2f} s)"

    def ensure_good(self) -> None:
        """Raise CheckError for the first failure, with the names of the others."""
        if bad := self.of(State.FAILED):
            verdict = bad[0]
            also = ", ".join(f"'{one.name}'" for one in bad[1:])
            rest = f" (failed as well: {also})" if also else ""
            message = f"{verdict.says}. {verdict.fix}".removesuffix(". ")
            raise CheckError(f"{message}{rest}", verdict.name, verdict.excerpt)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        checks = [one.to_dict() for one in self.checks]
        return {"is_good": self.is_good, "took_s": self.took_s, "checks": checks}
