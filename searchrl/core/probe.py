"""A probe: a text behind the beginning of a rollout, and how probable the policy finds it.

Owns both records. Algorithms make probes, the learner reads them. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

from searchrl.core.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Probe:
    """A text (or token ids) behind the first `stop` tokens of a rollout's record.

    The model sees those of the last one's segment.
    """

    trajectory: Trajectory
    stop: int
    text: str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of each token of a text, in nats, at the sampling temperature."""

    logps: tuple[float, ...]
    entropies: tuple[float, ...]
