"""The head: log-probs of given tokens from hidden states, and never all logits [N, V] at once.

Owns the chunked log-softmax and its gradient. A row's gradient is a multiple of

    u = (W[target] - p W) / temperature        d logp / d hidden,  p = softmax(logits)

so u, as wide as a hidden state, is computed while the row's logits exist. Only a head that is
trained itself needs p again, and a loss that trains the entropy the whole chunks. Shapes: N rows, D
hidden size, V vocabulary; `n` is N within one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK_BYTES = {"cpu": 1 << 24, "cuda": 1 << 29}
"""Bytes of fp32 logits that exist at a time, by device: what fits the cache of a CPU, and enough
to keep a GPU busy.

In bytes and not in rows, so that memory does not grow with the vocabulary.
"""

_CHUNK_BYTES_ELSEWHERE = 1 << 27

KEPT_BYTES = 1 << 26
"""Probabilities kept for a trained head's gradient: all of a micro-batch of a small model."""

_MIN_ROWS = 8


class TokenLogps(NamedTuple):
    """Results for N tokens, in nats and at least fp32."""

    logp_N: Tensor
    entropy_N: Tensor | None
    """Entropy of the distribution; a gradient only with `entropy_gradient`."""
    is_best_N: Tensor | None
    """True where no token is more probable; no gradient."""
    hidden_ND: Tensor | None = None
    """The hidden states behind the logits, with a gradient; None if the head is not a matrix."""


def head_logps(
    head: nn.Linear,
    hidden_ND: Tensor,
    target_N: Tensor,
    *,
    temperature: float = 1.0,
    with_entropy: bool = False,
    with_best: bool = False,
    entropy_gradient: bool = False,
) -> TokenLogps:
    """Log-probs of `target_N` under softmax(head(hidden_ND) / temperature).

    Gradients flow into the hidden states and, where they are trained, the weights of the head: from
    the log-probs and, with `entropy_gradient`, from the entropies.
    """
    if with_entropy and entropy_gradient and torch.is_grad_enabled():
        return _chunked_logps(head, hidden_ND, target_N, temperature, with_best)
    settings = (temperature, with_entropy, with_best, torch.is_grad_enabled())
    apply: Callable[..., tuple[Tensor, Tensor, Tensor]] = _HeadLogps.apply
    logp_N, entropy_N, is_best_N = apply(hidden_ND, head.weight, head.bias, target_N, settings)
    return TokenLogps(logp_N, entropy_N if with_entropy else None, is_best_N if with_best else None)


def logits_logps(
    logits_NV: Tensor,
    target_N: Tensor,
    *,
    temperature: float = 1.0,
    with_entropy: bool = False,
    with_best: bool = False,
    entropy_gradient: bool = False,
) -> TokenLogps:
    """The same from full logits: for models whose head is more than a matrix."""
    logits_NV = logits_NV.to(_precision(logits_NV.dtype))
    logp_NV = torch.log_softmax(logits_NV / temperature, dim=-1)
    logp_N = logp_NV.gather(1, target_N[:, None])[:, 0]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy_N = -(logp_NV.exp() * logp_NV).sum(dim=-1) if with_entropy else None
    with torch.no_grad():
        is_best_N = logp_N >= logp_NV.amax(dim=-1) if with_best else None
    return TokenLogps(logp_N, entropy_N, is_best_N)


def _chunked_logps(
    head: nn.Linear, hidden_ND: Tensor, target_N: Tensor, temperature: float, with_best: bool
) -> TokenLogps:
    """Log-probs and entropies whose gradients are both those of the logits, chunk by chunk."""

    def compute(hidden_nD: Tensor, target_n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        figures = logits_logps(
            head(hidden_nD), target_n, temperature=temperature,
            with_entropy=True, with_best=True, entropy_gradient=True,
        )  # fmt: skip
        assert figures.entropy_N is not None and figures.is_best_N is not None
        return figures.logp_N, figures.entropy_N, figures.is_best_N

    parts = [
        checkpoint(compute, hidden_ND[rows], target_N[rows], use_reentrant=False)
        for rows in _chunks(len(hidden_ND), len(head.weight), hidden_ND.device)
    ] or [compute(hidden_ND, target_N)]
    logp_N, entropy_N, is_best_N = (torch.cat(column) for column in zip(*parts, strict=True))
    return TokenLogps(logp_N, entropy_N, is_best_N if with_best else None)


def chunk_rows(vocab_size: int, device: torch.device) -> int:
    """Rows of logits that exist at a time."""
    num_bytes = CHUNK_BYTES.get(device.type, _CHUNK_BYTES_ELSEWHERE)
    return max(_MIN_ROWS, num_bytes // (4 * vocab_size))


class _HeadLogps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_N: Tensor,
        settings: tuple[float, bool, bool, bool],
    ) -> tuple[Tensor, Tensor, Tensor]:
        temperature, with_entropy, with_best, with_grad = settings
        num_rows, dtype = len(hidden_ND), _precision(hidden_ND.dtype)
        logp_N = torch.empty(num_rows, dtype=dtype, device=hidden_ND.device)
        entropy_N = torch.empty_like(logp_N if with_entropy else logp_N[:0])
        is_best_N = torch.empty_like(target_N if with_best else target_N[:0], dtype=torch.bool)
        needs_slope = with_grad and ctx.needs_input_grad[0]
        slope_ND = torch.empty_like(hidden_ND if needs_slope else hidden_ND[:0])
        is_trained = with_grad and any(ctx.needs_input_grad[1:3])
        is_kept = is_trained and num_rows * len(weight_VD) * dtype.itemsize <= KEPT_BYTES
        kept: list[Tensor] | None = [] if is_kept else None
        for rows in _chunks(num_rows, len(weight_VD), hidden_ND.device):
            target_n1 = target_N[rows, None]
            logits_nV = _logits(hidden_ND[rows], weight_VD, bias_V, temperature)
            logits_n = logits_nV.gather(1, target_n1)[:, 0]
            p_nV, best_n, log_sum_n = normalise(logits_nV)
            logp_N[rows] = logits_n - log_sum_n
            if with_best:
                is_best_N[rows] = logits_n >= best_n
            if with_entropy:
                # A matrix product: an elementwise product would need memory for one more chunk.
                mean_n = torch.bmm(p_nV[:, None], logits_nV[:, :, None])[:, 0, 0]
                entropy_N[rows] = log_sum_n - mean_n
            del logits_nV
            if needs_slope or kept is not None:
                minus_nV = _minus_one(p_nV, target_n1)
                if needs_slope:
                    slope_ND[rows] = minus_nV.to(weight_VD.dtype) @ weight_VD
                if kept is not None:
                    kept.append(minus_nV)
        if needs_slope:
            slope_ND.mul_(-1.0 / temperature)
        ctx.save_for_backward(
            slope_ND, *((hidden_ND, weight_VD, bias_V, target_N) if is_trained else ())
        )
        ctx.temperature, ctx.kept = temperature, kept
        ctx.mark_non_differentiable(entropy_N, is_best_N)
        return logp_N, entropy_N, is_best_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_N, (slope_ND, *saved) = grads[0], ctx.saved_tensors
        grad_ND = grad_VD = grad_V = None
        if ctx.needs_input_grad[0]:
            grad_ND = (grad_N[:, None] * slope_ND).to(slope_ND.dtype)
        if saved:
            grad_VD, grad_V = _weight_gradients(grad_N, ctx.temperature, ctx.kept, *saved)
        return grad_ND, grad_VD, grad_V, None, None


def _weight_gradients(
    grad_N: Tensor,
    temperature: float,
    kept: Sequence[Tensor] | None,
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of a trained head; p - onehot is what was kept, or made again."""
    # Sums over chunks in fp32: a bf16 sum of many of them loses the small ones.
    sum_VD = torch.zeros_like(weight_VD, dtype=_precision(weight_VD.dtype))
    sum_V = None if bias_V is None else torch.zeros_like(bias_V, dtype=sum_VD.dtype)
    for number, rows in enumerate(_chunks(len(hidden_ND), len(weight_VD), hidden_ND.device)):
        if kept is not None:
            minus_nV = kept[number]
        else:
            logits_nV = _logits(hidden_ND[rows], weight_VD, bias_V, temperature)
            minus_nV = _minus_one(normalise(logits_nV)[0], target_N[rows, None])
        scale_n = grad_N[rows] / -temperature
        if sum_V is not None:
            sum_V += scale_n @ minus_nV
        # The narrow factor is scaled; the wide one is read once and not changed.
        scaled_nD = (hidden_ND[rows] * scale_n[:, None]).to(hidden_ND.dtype)
        sum_VD += minus_nV.to(hidden_ND.dtype).T @ scaled_nD
    return sum_VD.to(weight_VD.dtype), None if sum_V is None else sum_V.to(weight_VD.dtype)


def normalise(logits_NV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(probabilities, largest logit, log-sum-exp) of every row.

    The sum is taken from the largest probability: an `exp` of log-probs, many of them too small for
    a float, takes ten times as long as the softmax on a CPU.
    """
    p_NV = torch.softmax(logits_NV, dim=-1)
    best_N = logits_NV.amax(dim=-1)
    return p_NV, best_N, best_N - p_NV.amax(dim=-1).log()


def _logits(
    hidden_nD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, temperature: float
) -> Tensor:
    # fp32: a bf16 log-prob has two digits, a ratio needs more. float64 stays: tests use it.
    logits_nV = F.linear(hidden_nD, weight_VD, bias_V).to(_precision(hidden_nD.dtype))
    return logits_nV.div_(temperature) if temperature != 1.0 else logits_nV


def _minus_one(p_nV: Tensor, target_n1: Tensor) -> Tensor:
    """p - onehot(target), in place and before any rounding: p may be almost 1."""
    return p_nV.scatter_add_(1, target_n1, torch.full_like(target_n1, -1, dtype=p_nV.dtype))


def _precision(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _chunks(num_rows: int, vocab_size: int, device: torch.device) -> Iterator[slice]:
    step = chunk_rows(vocab_size, device)
    return (slice(start, start + step) for start in range(0, num_rows, step))


def find_plain_head(model: Any, ids_BT: Tensor) -> bool:
    """Return whether logits are a matrix times hidden states: not if they are capped or scaled.

    Without dropout, which would make the two passes differ and draw random numbers.
    """
    if type(model.get_output_embeddings()) is not nn.Linear:
        return False
    with torch.no_grad():
        full = model(input_ids=ids_BT, use_cache=False).logits
        hidden = model.get_decoder()(input_ids=ids_BT, use_cache=False).last_hidden_state
        ours = model.get_output_embeddings()(hidden)
        # Of damaged weights both are NaN; that is said where they are sampled from.
        return bool(torch.allclose(full, ours, atol=1e-4, equal_nan=True))
