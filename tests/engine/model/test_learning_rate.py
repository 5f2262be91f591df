"""The learning rate of a step."""

import pytest

from searchrl.config.sections import OptimConfig
from searchrl.engine.model.optimizers import learning_rate


def test_learning_rate_warms_up_then_is_constant_linear_or_cosine():
    constant = OptimConfig(lr=1.0, warmup_steps=3, schedule="constant")
    assert [learning_rate(1.0, s, constant, 10) for s in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    linear = OptimConfig(lr=1.0, warmup_steps=2, schedule="linear")
    values = [learning_rate(2.0, s, linear, 10) for s in (0, 1, 2, 6, 9, 10, 20)]
    assert values == pytest.approx([2 / 3, 4 / 3, 2.0, 1.0, 0.25, 0.0, 0.0])
    cosine = OptimConfig(lr=1.0, warmup_steps=2, schedule="cosine")
    values = [learning_rate(1.0, s, cosine, 12) for s in range(13)]
    assert values[2] == 1.0 and values[7] == pytest.approx(0.5) and values[12] == pytest.approx(0)
    assert values[2:] == sorted(values[2:], reverse=True)
    assert learning_rate(1.0, 20, cosine, 12) == pytest.approx(0), "it does not rise again"
