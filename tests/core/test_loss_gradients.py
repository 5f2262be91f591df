"""The losses at ratio 1 and on ties: their gradients, whatever the torch version."""

import math
from dataclasses import replace

import pytest
import torch
from loss_columns import F64, LOSSES, hand, random_step, run
from torch import Tensor

from searchrl.core.columns import clamped
from searchrl.core.kl import k3

every_loss = pytest.mark.parametrize("name", LOSSES)
surrogates = pytest.mark.parametrize("name", [name for name in LOSSES if name != "cispo"])


@every_loss
def test_gradient_at_ratio_one_is_the_policy_gradient(name: str) -> None:
    """-weight_t A_t: REINFORCE for CISPO, its sequence-mean for GSPO, and LLDS is not active."""
    step = random_step(5)
    step = replace(step, logp_T=step.old_logp_T, sampler_logp_T=step.old_logp_T)
    loss, gradient_T, stats = run(name, step)
    expected_T = -(step.weight_T * step.adv_T)
    torch.testing.assert_close(gradient_T, expected_T, rtol=1e-12, atol=0)
    if name != "cispo":  # the value of CISPO's is no objective
        assert loss.item() == pytest.approx(expected_T.sum().item(), abs=1e-12)
    assert (stats.sum_drop, stats.num_cut, stats.num_clipped) == (0.0, 0, 0)
    means = stats.means()
    assert means["ratio_mean"] == means["sampler_ratio_mean"] == 1.0
    assert means["max_abs_log_ratio"] == means["approx_kl"] == 0.0


@pytest.fixture(params=["open", "closed"])
def interval(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """`clamp` with gradient 0 on its bounds, as in torch 2.14, and with gradient 1, as before."""
    clamp = Tensor.clamp

    def other(
        x: Tensor, min: float | None = None, max: float | None = None
    ) -> Tensor:  # torch's names
        low, high = -math.inf if min is None else min, math.inf if max is None else max
        is_in = (x > low) & (x < high) if request.param == "open" else (x >= low) & (x <= high)
        return torch.where(is_in, x, clamp(x.detach(), min, max))

    monkeypatch.setattr(Tensor, "clamp", other)
    monkeypatch.setattr(torch, "clamp", other)
    return str(request.param)


def at_ratio_one(name: str, advantage: float) -> tuple[float, float, int]:
    loss, gradient_T, stats = run(name, hand([1.0], [advantage]), clip_low=0.0, clip_high=0.0)
    return loss.item(), gradient_T.item(), stats.num_clipped


@surrogates
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_tie_at_ratio_one_takes_surr1(interval: str, name: str, advantage: float) -> None:
    assert at_ratio_one(name, advantage) == (-advantage, -advantage, 0)


@surrogates
@pytest.mark.parametrize(("ratio", "advantage"), [(1.2, 1.0), (0.8, -1.0)])
def test_a_tie_on_the_bound_of_the_clip_takes_surr1(
    interval: str, name: str, ratio: float, advantage: float
) -> None:
    """The ratio is the bound to the last bit: nothing is clipped, and all of the gradient stays."""
    step = hand([ratio], [advantage])
    exact = (step.logp_T - step.old_logp_T).exp().item()
    assert 1 + (exact - 1) == exact == 1 - (1 - exact), "or this is no tie"
    clip = abs(exact - 1)
    _, gradient_T, stats = run(name, step, clip_low=clip, clip_high=clip)
    assert stats.num_clipped == 0
    # LLDS pulls nothing here: its token rose, or its A < 0.
    assert gradient_T.item() == pytest.approx(-exact * advantage, abs=1e-15)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_log_ratio_on_its_bound_keeps_its_gradient(interval: str, sign: float) -> None:
    """The clamps at 20 themselves: on the bound the ratio and k3 are not flat yet."""
    on_T = torch.tensor([20.0 * sign], dtype=F64, requires_grad=True)
    (gradient_T,) = torch.autograd.grad(clamped(on_T).sum(), on_T)
    assert gradient_T.item() == 1.0
    (gradient_T,) = torch.autograd.grad(k3(on_T, torch.zeros(1, dtype=F64)).sum(), on_T)
    assert gradient_T.item() == pytest.approx(1 - math.exp(-20 * sign), rel=1e-12)
