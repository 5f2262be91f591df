"""Dynamic loss scaling: gradients of a float16 model, kept above the smallest float16.

Owns the scale and its rule, that of `torch.amp.GradScaler`: a gradient that is not finite halves
it and skips the step, many good steps in a row double it. Written here because it is two lines and
works on any device. The learner multiplies losses by it and divides gradients by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

_GROWTH, _BACKOFF, _GROWTH_INTERVAL = 2.0, 0.5, 2000
_LEAST = 2.0**-14
"""Least scale: if gradients overflow even here, something else is wrong."""


class LossScale:
    """The factor of the loss of a float16 model; always 1 if `is_active` is False."""

    def __init__(self, is_active: bool) -> None:
        self.is_active = is_active
        self.value = 2.0**16 if is_active else 1.0
        self._num_good = 0

    def unscale(self, parameters: Iterable[Tensor]) -> None:
        """Divide the gradients of a scaled loss by the factor."""
        if self.is_active:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(self.value)

    def update(self, is_finite: bool) -> None:
        """Take in whether the gradient of an optimiser step was finite."""
        if not self.is_active:
            return
        if not is_finite:
            self.value, self._num_good = max(_LEAST, self.value * _BACKOFF), 0
            return
        self._num_good += 1
        if self._num_good == _GROWTH_INTERVAL:
            self.value, self._num_good = self.value * _GROWTH, 0

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"value": self.value, "num_good": self._num_good}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` wrote."""
        if self.is_active:
            self.value, self._num_good = float(state["value"]), int(state["num_good"])
