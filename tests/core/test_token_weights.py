"""Token weights: who is in the denominator, decided once for the whole optimiser step."""

from __future__ import annotations

import pytest
from hypothesis import settings

from searchrl.core.advantage import StepScores, dead_groups, dr_grpo_advantages
from searchrl.core.reduction import Reduction, token_weights

# A third of the profile's examples: these run once per estimator or loss, on small inputs.
fewer = settings(max_examples=settings().max_examples // 3)
reductions = pytest.mark.parametrize("reduction", list(Reduction))


@pytest.mark.parametrize(
    ("counts", "reduction", "expected"),
    [
        ([1, 3, 0], Reduction.TOKEN_MEAN, [0.25, 0.25, 0.0]),
        ([1, 0, 0], Reduction.TOKEN_MEAN, [1.0, 0.0, 0.0]),
        ([1, 4, 0], Reduction.SEQUENCE_MEAN, [0.5, 0.125, 0.0]),
        ([1, 4, 0], Reduction.CONSTANT, [0.05, 0.05, 0.0]),
    ],
)
def test_weights_by_hand(counts: list[int], reduction: Reduction, expected: list[float]) -> None:
    """A rollout without a model token is in no denominator; the constant knows no length."""
    assert token_weights(counts, reduction, constant=10) == expected


@reductions
def test_step_without_model_tokens_has_zero_weights_not_nan(reduction: Reduction) -> None:
    assert token_weights([0, 0], reduction, constant=8) == [0.0, 0.0]
    assert token_weights([], reduction, constant=8) == []


def test_dead_group_does_not_shrink_the_loss_of_the_others() -> None:
    """Two groups, one constant: the loss is that of the live group alone."""
    step = StepScores([1.0, 1.0, 1.0, 0.0], ["flat", "flat", "live", "live"], [True] * 4)
    advantages = dr_grpo_advantages(step)
    counts = [4, 2, 3, 3]
    dead = dead_groups(advantages, step.group_ids, step.is_scored)
    weights = token_weights(
        [0 if g in dead else n for n, g in zip(counts, step.group_ids, strict=True)],
        Reduction.TOKEN_MEAN,
    )
    assert weights == [0.0, 0.0, 1 / 6, 1 / 6]
    assert token_weights(counts, Reduction.TOKEN_MEAN)[2] == 1 / 12


def test_bad_weight_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="needs constant > 0"):
        token_weights([1], Reduction.CONSTANT)
    with pytest.raises(ValueError, match="needs constant > 0"):
        token_weights([1], Reduction.CONSTANT, constant=0)
    with pytest.raises(ValueError, match="cannot be negative"):
        token_weights([1, -1], Reduction.TOKEN_MEAN)
    with pytest.raises(ValueError, match="token-median"):
        token_weights([1], "token-median")  # type: ignore[arg-type]
