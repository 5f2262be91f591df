"""Optimisers by name: what they keep in memory, and that a saved state goes on exactly."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from searchrl.engine.model.optimizers import MIN_8BIT_SIZE, OptimizerName, make_optimizer


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((MIN_8BIT_SIZE // 32, 32), (8, 8))
    return [nn.Parameter(torch.randn(size, generator=generator)) for size in sizes]


def step(optimizer: Optimizer, leaves: list[nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for leaf in leaves:
        leaf.grad = torch.randn(leaf.shape, generator=generator)
    optimizer.step()


@pytest.mark.parametrize("name", ["adamw", "adamw8bit"])
def test_saved_state_goes_on_to_the_last_bit(name: OptimizerName):
    ours, theirs = parameters(), parameters()
    one, other = make_optimizer(name, ours, 1e-2), make_optimizer(name, theirs, 1e-2)
    step(one, ours, 1)
    with torch.no_grad():
        for mine, copy in zip(ours, theirs, strict=True):
            copy.copy_(mine)
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    step(one, ours, 2)
    step(other, theirs, 2)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_eight_bits_of_state_where_that_saves_memory_and_no_weight_decay():
    leaves = parameters()
    optimizer: Any = make_optimizer("adamw8bit", leaves, 1e-2)
    step(optimizer, leaves, 1)
    assert [optimizer.state[p]["state1"].dtype for p in leaves] == [torch.uint8, torch.float32]
    twins = parameters()
    plain = make_optimizer("adamw", twins, 1e-2)
    step(plain, twins, 1)
    assert isinstance(plain, AdamW)
    for optimizer_ in (optimizer, plain):
        assert optimizer_.param_groups[0]["weight_decay"] == 0.0
        assert tuple(optimizer_.param_groups[0]["betas"]) == (0.9, 0.999)
    for ours, theirs in zip(leaves, twins, strict=True):
        assert torch.allclose(ours, theirs, atol=2e-3)
