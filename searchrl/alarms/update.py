"""Alarms of the update: divergence, a sampler that disagrees with the trainer, a KL that blows up.

They read what the learner says of its tokens and gradients. They do not read rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated

from pydantic import Field

from searchrl.alarms.curves import WINDOW, above, mean, percent, streak
from searchrl.contracts.history import History
from searchrl.contracts.watching import Alert

Steps = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]

_ROUNDING = {"bfloat16": 0.02, "float16": 0.0025}
_ROUNDING_ELSE = 1e-4
"""Mean |trainer - sampler| in nats that rounding explains. Half the limits at which a run stops, or
less: a few units in the last place for each of a few dozen layers."""


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Sounds when numbers are not finite, or when update after update is skipped.

    Args:
        steps: how many steps in a row.
        max_nonfinite: share of the trained tokens that may have a log-prob that is not finite.
    """

    steps: Steps = 3
    max_nonfinite: Share = 0.01

    def check(self, history: History) -> Alert | None:
        """Look at the last steps, each of which must be bad."""
        steps = reversed(history.steps())
        bad = [*takewhile(lambda step: self._fault(history, step), steps)]
        if len(bad) < self.steps:
            return None
        return Alert(
            f"{self._fault(history, bad[0])}, in each of the last {len(bad)} steps",
            bad[-1],
            "nothing is learned in such a step, and weights that are not finite stay so",
            (
                "go back to an earlier checkpoint (--init-from) with a fifth of optim.lr",
                "compute in model.dtype=float32, or bfloat16 instead of float16",
            ),
            "critical",
            "stop",
        )

    def _fault(self, history: History, step: int) -> str:
        if count := history.at(step, "nonfinite_figures"):  # what is not finite is not recorded
            return f"{count:.0f} figures of the update are not finite"
        share = history.at(step, "nonfinite_frac") or 0.0
        if share > self.max_nonfinite:
            return f"{percent(share)} of the trained tokens have a log-prob that is not finite"
        # In float16 the scale of the loss starts too high on purpose, and halves with each skip.
        scale = history.at(step, "loss_scale")
        is_skipped = history.at(step, "skipped_steps") and history.at(step, "grad_norm") is None
        if is_skipped and (scale is None or scale <= 1):
            return "every update was skipped, because its gradient was not finite"
        return ""


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """Sounds when sampler and trainer give the sampled tokens other log-probs.

    It reads `mismatch`, the mean absolute difference before the first update of a step. There both
    have the same weights, so the difference is an error of one of them. A single step with a large
    one stops the run anyway; the alarm sees what stays below that limit, and what grows.

    Args:
        max_gap: nats per token; null: 0.0001 in float32, 0.0025 in float16, 0.02 in bfloat16.
        growth: how many times its first value the gap may become, once it is a tenth of `max_gap`.
        steps: how many steps in a row.
    """

    max_gap: Positive | None = None
    growth: Positive = 4.0
    steps: Steps = 3

    def check(self, history: History) -> Alert | None:
        """Compare the last gaps with the limit, and with the first ones."""
        curve = history.curve("mismatch")
        dtype = str(history.setting("model.dtype") or "float32")
        limit = self.max_gap or _ROUNDING.get(dtype, _ROUNDING_ELSE)
        bad = streak(curve, above(limit), self.steps)
        says = f"at most {limit:g} is rounding in {dtype}"
        if not bad and len(curve) >= 2 * WINDOW:
            first = mean(curve[:WINDOW])
            bad = streak(curve, above(max(limit / 10, self.growth * first)), self.steps)
            says = f"it was {first:.2g} in the first {WINDOW} steps"
        if not bad:
            return None
        k3 = history.at(bad[-1].step, "mismatch_k3")
        k3_says = "" if k3 is None else f" (k3 {k3:.2g})"
        return Alert(
            f"sampler and trainer are {bad[-1].value:.2g} nats per token apart{k3_says}; {says}",
            bad[0].step,
            "the update takes the difference for something that the policy did",
            (
                "set engine.generator=hf: if the gap goes, the fault is in the generator",
                "set model.dtype=float32, or --algorithm masked_tis, which leaves such tokens out",
            ),
            "critical",
        )


@dataclass(frozen=True, kw_only=True)
class KlBlowUp:
    """Sounds when the policy runs away from where it started, or moves too far in one step.

    Args:
        max_kl: k3 to the starting policy, nats per token (metric `kl`).
        max_step_kl: k3 from the sampled policy within a step (metric `approx_kl`).
        steps: how many steps in a row.
    """

    max_kl: Positive = 1.0
    max_step_kl: Positive = 0.1
    steps: Steps = 3

    def check(self, history: History) -> Alert | None:
        """Look at both, the distance to the start first."""
        for name, limit in (("kl", self.max_kl), ("approx_kl", self.max_step_kl)):
            if bad := streak(history.curve(name), above(limit), self.steps):
                place, second = "the starting policy", "raise algorithm.beta (tenfold)"
                if name != "kl":
                    place = "the policy that sampled"
                    second = "take fewer updates per step: optim.epochs=1, optim.mini_batches=1"
                return Alert(
                    f"the policy is {bad[-1].value:.2g} nats per token away from {place} (limit "
                    f"{limit:g}, metric {name})",
                    bad[0].step,
                    "a policy that moves this fast forgets what it could do",
                    ("halve optim.lr, from an earlier checkpoint", second),
                    "critical",
                )
        return None
