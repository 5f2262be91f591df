"""k1, k2, k3: signs, values and gradients in expectation, enumerated over whole distributions."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from searchrl.core.kl import KL_LOG_RATIO_MAX, is_kl_clamped, k1, k2, k3, widen

Estimator = Callable[[Tensor, Tensor], Tensor]
# A third of the profile's examples: these run once per estimator or loss, on small inputs.
fewer = settings(max_examples=settings().max_examples // 3)
estimators = pytest.mark.parametrize("estimator", [k1, k2, k3], ids=["k1", "k2", "k3"])

pairs = st.integers(2, 6).flatmap(
    lambda v: st.tuples(
        st.lists(st.floats(-3, 3), min_size=v, max_size=v),
        st.lists(st.floats(-3, 3), min_size=v, max_size=v),
    )
)


def distributions(pair: tuple[list[float], list[float]]) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (leaf) and log-probs of the policy q, log-probs of the reference p, in float64."""
    logits_V = torch.tensor(pair[0], dtype=torch.float64, requires_grad=True)
    ref_logp_V = torch.log_softmax(torch.tensor(pair[1], dtype=torch.float64), 0)
    return logits_V, torch.log_softmax(logits_V, 0), ref_logp_V


def kl(from_logp_V: Tensor, to_logp_V: Tensor) -> Tensor:
    """KL(from || to), the exact sum over the vocabulary."""
    return (from_logp_V.exp() * (from_logp_V - to_logp_V)).sum()


def expected_gradient(estimator: Estimator, pair: tuple[list[float], list[float]]) -> Tensor:
    """E_q[grad estimator]: every token once, weighted by its *fixed* sampling probability."""
    logits_V, logp_V, ref_logp_V = distributions(pair)
    total = (logp_V.exp().detach() * estimator(logp_V, ref_logp_V)).sum()
    return torch.autograd.grad(total, logits_V)[0]


def exact_gradient(
    divergence: Callable[[Tensor, Tensor], Tensor], pair: tuple[list[float], list[float]]
) -> Tensor:
    logits_V, logp_V, ref_logp_V = distributions(pair)
    return torch.autograd.grad(divergence(logp_V, ref_logp_V), logits_V)[0]


def test_values_by_hand() -> None:
    # The reference gives the token twice the probability: u = log 2.
    logp, ref_logp = torch.tensor([0.25]).log(), torch.tensor([0.5]).log()
    u = math.log(2)
    assert k1(logp, ref_logp).item() == pytest.approx(-u, rel=1e-6)
    assert k2(logp, ref_logp).item() == pytest.approx(u * u / 2, rel=1e-6)
    assert k3(logp, ref_logp).item() == pytest.approx(1 - u, rel=1e-6)  # 2 - log 2 - 1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_k3_of_nearly_equal_fp32_log_probs_is_not_rounding_noise(sign: float) -> None:
    """exp(u) - u - 1 in fp32 is off by 100 % at u = 1e-4; on some processors it goes negative."""
    u_T = sign * torch.logspace(-6, -1, 500)
    value_T = k3(torch.zeros_like(u_T), u_T)
    assert (value_T >= 0).all()
    exact_T = torch.expm1(u_T.double()) - u_T.double()
    large_T = u_T.abs() >= 1e-3
    torch.testing.assert_close(value_T[large_T].double(), exact_T[large_T], rtol=5e-4, atol=0.0)
    torch.testing.assert_close(value_T.double(), exact_T, rtol=0.0, atol=1e-8)


PULLS = [(k3, lambda q, p: kl(p, q)), (k2, kl), (k1, lambda q, p: 0 * kl(q, p))]


@pytest.mark.parametrize(("estimator", "divergence"), PULLS, ids=["k3", "k2", "k1"])
@fewer
@given(pair=pairs)
def test_what_each_pulls_along_as_a_loss(
    estimator: Estimator, divergence: Estimator, pair: tuple[list[float], list[float]]
) -> None:
    """E[grad k3] = grad KL(p || q), although E[k3] = KL(q || p); k2: KL(q || p); k1: nothing."""
    found, expected = expected_gradient(estimator, pair), exact_gradient(divergence, pair)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_clamp_is_from_above_only() -> None:
    u_T = torch.tensor([-300.0, -25.0, 19.0, 20.0, 25.0, 300.0], dtype=torch.float64)
    value_T = k3(torch.zeros_like(u_T), u_T)
    assert value_T[:2].tolist() == pytest.approx([299.0, 24.0], rel=1e-9)
    top = math.exp(KL_LOG_RATIO_MAX) - KL_LOG_RATIO_MAX - 1
    assert value_T[3:].tolist() == pytest.approx([top] * 3) and value_T[2].item() < top
    assert is_kl_clamped(torch.zeros_like(u_T), u_T).tolist() == [False] * 4 + [True] * 2
    logp = torch.tensor([-120.0], requires_grad=True)  # in fp32 e^120 is infinite
    value = k3(logp, torch.zeros(1))
    (gradient,) = torch.autograd.grad(value.sum(), logp)
    assert torch.isfinite(value).all() and gradient.item() == 0.0


@estimators
@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 7), (torch.float16, 10)])
def test_half_precision_is_widened_before_the_subtraction(
    estimator: Estimator, dtype: torch.dtype, bits: int
) -> None:
    """Both log-probs are exact in `dtype`, their difference needs one bit more than it has."""
    logp, ref_logp = torch.tensor([-1 - 2.0**-bits]), torch.tensor([-3 - 2.0 ** (1 - bits)])
    assert torch.equal(logp.to(dtype).float(), logp)
    assert torch.equal(ref_logp.to(dtype).float(), ref_logp)
    assert not torch.equal((ref_logp.to(dtype) - logp.to(dtype)).float(), ref_logp - logp)
    result = estimator(logp.to(dtype), ref_logp.to(dtype))
    assert result.dtype == torch.float32 and torch.equal(result, estimator(logp, ref_logp))


@estimators
def test_float64_stays_float64(estimator: Estimator) -> None:
    column = torch.zeros(2, dtype=torch.float64)
    assert estimator(column, column).dtype == torch.float64
    assert estimator(column.float(), column).dtype == torch.float64
    assert widen(column).dtype == torch.float64


@estimators
def test_shapes_that_would_broadcast_are_refused(estimator: Estimator) -> None:
    with pytest.raises(ValueError, match=r"one shape, got \(3, 1\) and \(3,\)"):
        estimator(torch.zeros(3, 1), torch.zeros(3))
