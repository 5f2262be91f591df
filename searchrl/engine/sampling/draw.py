"""Drawing tokens: counter-based uniforms and one inverse-CDF draw per row, on the device.

A draw is a function of (dialogue key, position) and of the logits, so it depends on no RNG state,
batch or order. Log-probs are those of the *full* vocabulary at the sampling temperature, in fp32,
exactly as the trainer takes them. Shapes: B dialogues, V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from searchrl.engine.model.head import normalise
from searchrl.engine.sampling.generator import Sampling
from searchrl.errors import GenerationFailure

_BLOCK = 64


class Draw(NamedTuple):
    """One token per row. `log_mass_B` is log of the probability left to draw from (0: all)."""

    token_B: Tensor
    logp_B: Tensor
    log_mass_B: Tensor | None

    def read(self) -> tuple[list[int], list[float], float]:
        """Return tokens, log-probs and the sum of log masses: one transfer to the host.

        Raises:
            GenerationFailure: if a row had no finite distribution.
        """
        columns = [self.token_B.float(), self.logp_B]  # exact for ids below 2**24
        columns += [] if self.log_mass_B is None else [self.log_mass_B]
        ids, logps, *masses = torch.stack(columns).tolist()
        if not all(map(math.isfinite, logps)):
            raise GenerationFailure(
                "the model returned non-finite logits; the weights are damaged or the dtype "
                "overflows (try --set model.dtype=float32)"
            )
        return [*map(int, ids)], logps, sum(masses[0]) if masses else 0.0


def draw_tokens(logits_BV: Tensor, sampling: Sampling, key_B: Tensor, position_B: Tensor) -> Draw:
    """Draw the next token of every row.

    Args:
        logits_BV: any float dtype.
        sampling: temperature and, for evaluation, what to cut from the draw.
        key_B: int64, `rng_keys` of the dialogues (their 64 bits).
        position_B: int64, where in its dialogue each token will stand.

    A row without a finite distribution gets a log-prob that is not finite; `Draw.read` raises.
    """
    # fp32: bf16 log-probs differ from the trainer's by more than a clip range.
    logits_BV = logits_BV.float()
    if sampling.temperature not in (0.0, 1.0):
        logits_BV = logits_BV / sampling.temperature
    prob_BV, _, log_sum_B = normalise(logits_BV)
    log_mass_B = None
    if sampling.temperature == 0:
        token_B = logits_BV.argmax(dim=-1)
    else:
        if sampling.is_truncated:
            prob_BV = truncate(prob_BV, sampling)
            log_mass_B = prob_BV.sum(dim=-1).log()
        token_B = inverse_cdf(prob_BV, uniforms(key_B, position_B))
    return Draw(token_B, logits_BV.gather(1, token_B[:, None])[:, 0] - log_sum_B, log_mass_B)


def truncate(prob_BV: Tensor, sampling: Sampling) -> Tensor:
    """Set probabilities to 0 that top-k, top-p or min-p cut, without renormalising."""
    if sampling.top_k:
        least_B1 = prob_BV.topk(min(sampling.top_k, prob_BV.shape[-1]), dim=-1).values[:, -1:]
        prob_BV = prob_BV.where(prob_BV >= least_B1, 0.0)
    if sampling.min_p > 0:
        prob_BV = prob_BV.where(prob_BV >= sampling.min_p * prob_BV.amax(-1, keepdim=True), 0.0)
    if sampling.top_p < 1:
        ordered_BV, order_BV = prob_BV.sort(dim=-1, descending=True)
        # A token stays while those before it have not reached top_p; the first always stays.
        exact = torch.float32 if prob_BV.device.type == "mps" else torch.float64
        before_BV = ordered_BV.cumsum(-1, dtype=exact) - ordered_BV
        total_B1 = ordered_BV.sum(-1, keepdim=True)
        ordered_BV = ordered_BV.where(before_BV < sampling.top_p * total_B1, 0.0)
        prob_BV = torch.zeros_like(prob_BV).scatter(1, order_BV, ordered_BV)
    return prob_BV


def inverse_cdf(prob_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """The token whose cumulative probability first exceeds u times the total.

    Summed in float64, first over blocks of tokens, then within the block that u falls into.
    """
    device = prob_BV.device
    if device.type == "mps":  # which has no float64
        prob_BV, uniform_B = prob_BV.cpu(), uniform_B.cpu()
    blocks_BNb = F.pad(prob_BV, (0, -prob_BV.shape[1] % _BLOCK)).unflatten(1, (-1, _BLOCK))
    cdf_BN = blocks_BNb.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    threshold_B1 = uniform_B[:, None] * cdf_BN[:, -1:]
    block_B1 = _first_above(cdf_BN, threshold_B1)
    before_B1 = F.pad(cdf_BN, (1, 0)).gather(1, block_B1)
    inside_Bb = blocks_BNb.take_along_dim(block_B1[:, :, None], dim=1)[:, 0].double().cumsum(dim=-1)
    token_B1 = block_B1 * _BLOCK + _first_above(inside_Bb, threshold_B1 - before_B1)
    return token_B1[:, 0].clamp_max(prob_BV.shape[1] - 1).to(device)


def _first_above(cdf_BN: Tensor, threshold_B1: Tensor) -> Tensor:
    """First entry above a threshold, as [B, 1]; the last one with a probability where the threshold
    rounds up to the total."""
    total_B1 = cdf_BN[:, -1:].contiguous()
    place_B1 = torch.searchsorted(cdf_BN, threshold_B1, right=True)
    last_B1 = torch.searchsorted(cdf_BN, total_B1)
    return torch.minimum(place_B1, last_B1).clamp_max(cdf_BN.shape[1] - 1)  # NaN has no place


def uniforms(key_B: Tensor, position_B: Tensor) -> Tensor:
    """Uniforms in [0, 1), float64, from (key, position): SplitMix64 (Steele et al. 2014)."""
    if key_B.device.type == "mps":
        key_B, position_B = key_B.cpu(), position_B.cpu()
    state_B = key_B + position_B * _signed(0x9E3779B97F4A7C15)
    state_B = (state_B ^ _shift(state_B, 30)) * _signed(0xBF58476D1CE4E5B9)
    state_B = (state_B ^ _shift(state_B, 27)) * _signed(0x94D049BB133111EB)
    state_B = state_B ^ _shift(state_B, 31)
    return _shift(state_B, 11).double() * 2.0**-53


def _shift(value: Tensor, bits: int) -> Tensor:
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    """The int64 with the 64 bits of `value`."""
    return value - (1 << 64) if value >= 1 << 63 else value


def key_tensor(keys: list[int]) -> Tensor:
    """64-bit keys as int64."""
    return torch.tensor([_signed(key & ((1 << 64) - 1)) for key in keys])
