"""A probe: a text behind the beginning of a rollout, and how probable the policy finds it.

Owns both records. Algorithms make probes, the learner reads them. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

from searchrl.core.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Probe:
    """A text behind the first tokens of a rollout: `stop` is where they end in its record.

    The model sees the tokens of the segment in which the last of them stands. `text` is a string,
    or token ids.
    """

    trajectory: Trajectory
    stop: int
    text: str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of each token of a text, in nats, at the sampling temperature."""

    logps: tuple[float, ...]
    entropies: tuple[float, ...]
