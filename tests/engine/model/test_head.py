"""The head: log-probs, entropies and gradients of full logits, without full logits."""

from typing import Any

import pytest
import torch
from engine_toy import most_bytes
from pytest import MonkeyPatch
from torch import Tensor, nn

from searchrl.engine.model import head as head_module
from searchrl.engine.model.head import TokenLogps, chunk_rows, head_logps, logits_logps

N, D, V = 37, 12, 101


def make(dtype: torch.dtype, bias: bool = False, trained: bool = True) -> tuple[Any, ...]:
    torch.manual_seed(0)
    head = nn.Linear(D, V, bias=bias, dtype=dtype).requires_grad_(trained)
    hidden = (3 * torch.randn(N, D, dtype=dtype)).requires_grad_()
    return head, hidden, torch.randint(0, V, (N,)), torch.randn(N, dtype=dtype)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: MonkeyPatch) -> None:
    """8 rows at a time: 37 make four whole chunks and a part of one."""
    monkeypatch.setattr(head_module, "CHUNK_BYTES", {"cpu": 1, "cuda": 1})


def gradients(result: TokenLogps, slope: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad((result.logp_N * slope).sum(), inputs)


@pytest.mark.parametrize("kept_bytes", [0, 1 << 30])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_chunks_are_the_full_logits(
    monkeypatch: MonkeyPatch, dtype: torch.dtype, temperature: float, bias: bool, kept_bytes: int
):
    """Whether p is kept for the gradient of a trained head or made again."""
    monkeypatch.setattr(head_module, "KEPT_BYTES", kept_bytes)
    head, hidden, target, slope = make(dtype, bias)
    asked: dict[str, Any] = dict(temperature=temperature, with_entropy=True, with_best=True)
    ours = head_logps(head, hidden, target, **asked)
    full = logits_logps(head(hidden), target, **asked)
    limit = 1e-12 if dtype == torch.float64 else 1e-5
    assert (ours.logp_N - full.logp_N).abs().max() < limit
    assert ours.entropy_N is not None and full.entropy_N is not None
    assert (ours.entropy_N - full.entropy_N).abs().max() < limit
    assert ours.is_best_N is not None and full.is_best_N is not None
    assert torch.equal(ours.is_best_N, full.is_best_N)
    assert torch.equal(ours.is_best_N, head(hidden).argmax(-1) == target)
    inputs = [hidden, *head.parameters()]
    pairs = zip(gradients(ours, slope, inputs), gradients(full, slope, inputs), strict=True)
    for mine, expected in pairs:
        assert (mine - expected).abs().max() <= limit * expected.abs().max()
    assert not ours.entropy_N.requires_grad and not full.entropy_N.requires_grad
    bare = head_logps(head, hidden, target)
    assert bare.entropy_N is None and bare.is_best_N is None


def test_gradient_is_that_of_finite_differences():
    head, hidden, target, _ = make(torch.float64, bias=True)
    assert torch.autograd.gradcheck(
        lambda hidden_ND: head_logps(head, hidden_ND, target, temperature=0.8).logp_N, (hidden,)
    )


def test_frozen_head_gets_no_gradient_and_keeps_no_hidden_state():
    head, hidden, target, slope = make(torch.float32, trained=False)
    result = head_logps(head, hidden, target)
    (saved,) = result.logp_N.grad_fn.saved_tensors  # type: ignore[union-attr]
    assert saved.shape == hidden.shape
    (result.logp_N * slope).sum().backward()
    assert head.weight.grad is None and hidden.grad is not None


def test_bf16_hidden_states_give_fp32_logprobs():
    head, hidden, target, slope = make(torch.bfloat16)
    ours = head_logps(head, hidden, target, with_entropy=True)
    assert ours.logp_N.dtype == torch.float32
    # The logits are bf16 either way; what is taken of them is not rounded again.
    full = logits_logps(head(hidden), target, with_entropy=True)
    assert (ours.logp_N - full.logp_N).abs().max() < 1e-5
    inputs = [hidden, head.weight]
    pairs = zip(gradients(ours, slope, inputs), gradients(full, slope, inputs), strict=True)
    for mine, expected in pairs:
        assert mine.dtype == torch.bfloat16
        assert (mine - expected).norm() <= 2e-2 * expected.norm()


def test_no_token_gives_no_logprob_and_a_gradient_of_zero():
    head, hidden, target, _ = make(torch.float32)
    result = head_logps(head, hidden[:0], target[:0], with_entropy=True)
    assert result.logp_N.shape == (0,)
    result.logp_N.sum().backward()
    assert hidden.grad is not None and not hidden.grad.any()
    asked: dict[str, Any] = {"with_entropy": True, "entropy_gradient": True}
    result = head_logps(head, hidden[:0], target[:0], **asked)
    assert result.entropy_N is not None and result.entropy_N.shape == (0,)
    assert head_logps(head, hidden, target, **asked).is_best_N is None


def peak_bytes(vocab_size: int) -> int:
    """Largest memory of a forward and backward pass through a frozen head, its weights left out."""
    rows, width = 600, 16
    torch.manual_seed(0)
    head = nn.Linear(width, vocab_size, bias=False).requires_grad_(False)
    hidden = torch.randn(rows, width, requires_grad=True)
    target = torch.randint(0, vocab_size, (rows,))
    with torch.profiler.profile(profile_memory=True, record_shapes=False) as profile:
        result = head_logps(head, hidden, target, with_entropy=True)
        result.logp_N.sum().backward()
    return most_bytes(profile)


def test_memory_does_not_grow_with_the_vocabulary(monkeypatch: MonkeyPatch):
    monkeypatch.setattr(head_module, "CHUNK_BYTES", {"cpu": 16 * 4 * 152_000})
    small, large = peak_bytes(32_000), peak_bytes(152_000)
    assert chunk_rows(152_000, torch.device("cpu")) == 16
    assert small > 16 * 4 * 152_000  # it has measured the chunk
    assert large <= 1.05 * small
    assert large < 600 * 152_000  # a quarter of the logits alone


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_entropy_has_the_gradient_of_the_full_logits_where_it_is_asked_for(
    temperature: float, bias: bool
):
    head, hidden, target, slope = make(torch.float64, bias)
    asked: dict[str, Any] = dict(
        temperature=temperature, with_entropy=True, with_best=True, entropy_gradient=True
    )
    ours = head_logps(head, hidden, target, **asked)
    full = logits_logps(head(hidden), target, **asked)
    inputs = [hidden, *head.parameters()]

    def both(result: TokenLogps) -> tuple[Tensor, ...]:
        assert result.entropy_N is not None
        return torch.autograd.grad((result.logp_N * slope + 2 * result.entropy_N).sum(), inputs)

    for mine, expected in zip(both(ours), both(full), strict=True):
        assert (mine - expected).abs().max() <= 1e-12 * expected.abs().max()
    plain = head_logps(head, hidden, target, temperature=temperature, with_entropy=True)
    assert ours.entropy_N is not None and plain.entropy_N is not None
    assert (ours.entropy_N - plain.entropy_N).abs().max() < 1e-12
    assert (ours.logp_N - plain.logp_N).abs().max() < 1e-12
    with torch.no_grad():
        again = head_logps(head, hidden, target, **asked)
    assert again.entropy_N is not None and not again.entropy_N.requires_grad
