"""Token weights: who is in the denominator, decided once for the whole optimiser step."""

import pytest

from searchrl.core.reduction import Reduction, token_weights

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


def test_bad_weight_settings_are_refused() -> None:
    for wrong in (None, 0):
        with pytest.raises(ValueError, match="constant"):
            token_weights([1], Reduction.CONSTANT, constant=wrong)
    with pytest.raises(ValueError, match="negative"):
        token_weights([1, -1], Reduction.TOKEN_MEAN)
    with pytest.raises(ValueError, match="token-median"):
        token_weights([1], "token-median")  # type: ignore[arg-type]
