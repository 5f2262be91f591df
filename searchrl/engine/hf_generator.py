"""The plain Hugging Face generator: stock model, stock cache, one padded batch at a time.

Owns decoding with `DynamicCache`, sampling from per-dialogue random streams and stop strings. It
is the reference that faster generators must agree with, so it favours plain over fast: a turn
recomputes its dialogue, and the cache lives for one turn only (it can never be stale). Log-probs
are taken at the sampling temperature over the full vocabulary, in fp32, exactly as the trainer
takes them. Shapes: B dialogues, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from searchrl.contracts import Expert
from searchrl.core.trajectory import TurnStop
from searchrl.engine.generator import FinishedTurn, Handle, Sampling
from searchrl.engine.policy import Policy
from searchrl.engine.rendering import find_stop
from searchrl.errors import GenerationFailure

_SCAN_EXTRA = 4
"""Stop strings are looked for in as many last tokens as they have bytes, and this many more (a
tail that begins inside a character decodes it wrongly)."""


@dataclass(slots=True)
class _Dialogue:
    handle: Handle
    ids: list[int]
    rng_key: int
    stops: tuple[str, ...] = ()
    scan_tokens: int = 0
    max_tokens: int = 0
    is_waiting: bool = False
    new_ids: list[int] = field(default_factory=list)
    new_logps: list[float] = field(default_factory=list)
    reason: TurnStop | None = None


class HFGenerator:
    """Generates with `model(...)` of a stock causal LM.

    Args:
        policy: the model and tokenizer; its current weights are always the ones used.
        sampling: temperature (0: greedy).
        batch_size: most dialogues decoded together.
    """

    def __init__(self, policy: Policy, sampling: Sampling, batch_size: int = 64) -> None:
        self.policy = policy
        self.sampling = sampling
        self.batch_size = batch_size
        self.version = policy.version
        self._dialogues: dict[Handle, _Dialogue] = {}
        self._next = 0

    def open(
        self,
        prompt_ids: Sequence[int],
        n: int,
        rng_keys: Sequence[int],
        experts: Sequence[Expert] | None = None,
    ) -> list[Handle]:
        """See `Generator.open`."""
        handles = []
        for key in rng_keys[:n]:
            handle = Handle(self._next)
            self._next += 1
            self._dialogues[handle] = _Dialogue(handle, list(prompt_ids), key)
            handles.append(handle)
        return handles

    def submit(
        self, handle: Handle, append_ids: Sequence[int], stops: Sequence[str], max_tokens: int
    ) -> None:
        """See `Generator.submit`."""
        dialogue = self._dialogues[handle]
        dialogue.ids.extend(append_ids)
        dialogue.stops, dialogue.max_tokens = tuple(stops), max_tokens
        # No token is shorter than a byte, so a stop string never spans more tokens than bytes.
        dialogue.scan_tokens = max((len(s.encode()) for s in stops), default=0) + _SCAN_EXTRA
        dialogue.new_ids, dialogue.new_logps, dialogue.reason = [], [], None
        dialogue.is_waiting = True

    def poll(self) -> list[FinishedTurn]:
        """Decode the waiting dialogues, longest first, one batch per call."""
        waiting = [d for d in self._dialogues.values() if d.is_waiting]
        if not waiting:
            return []
        # Equal lengths together waste no padding; the order depends on the seed alone.
        waiting.sort(key=lambda d: (-len(d.ids), d.handle))
        batch = waiting[: self.batch_size]
        with torch.inference_mode(), self.policy.evaluating():
            self._decode(batch)
        turns = []
        for dialogue in sorted(batch, key=lambda d: d.handle):
            dialogue.is_waiting = False
            dialogue.ids.extend(dialogue.new_ids)
            assert dialogue.reason is not None
            turns.append(
                FinishedTurn(
                    dialogue.handle,
                    tuple(dialogue.new_ids),
                    tuple(dialogue.new_logps),
                    dialogue.reason,
                    self.version,
                )
            )
        return turns

    def close(self, handle: Handle) -> None:
        """See `Generator.close`."""
        self._dialogues.pop(handle, None)

    def sync(self, policy: Policy) -> int:
        """Take the policy; no cache outlives a turn, so nothing can be stale."""
        self.policy = policy
        self.version = policy.version
        return self.version

    def _decode(self, batch: list[_Dialogue]) -> None:
        """Prefill left-padded, then one token per live dialogue and step."""
        device = self.policy.device
        lengths = [len(d.ids) for d in batch]
        width = max(lengths)
        ids_BT = torch.zeros(len(batch), width, dtype=torch.long)
        mask_BT = torch.zeros(len(batch), width, dtype=torch.long)
        for row, dialogue in enumerate(batch):
            ids_BT[row, width - lengths[row] :] = torch.tensor(dialogue.ids)
            mask_BT[row, width - lengths[row] :] = 1
        ids_BT, mask_BT = ids_BT.to(device), mask_BT.to(device)
        position_BT = (mask_BT.cumsum(-1) - 1).clamp_min(0)
        cache = DynamicCache(config=self.policy.model.config)
        live = list(batch)
        while live:
            logits_BV = self.policy.model(
                input_ids=ids_BT,
                attention_mask=mask_BT,
                position_ids=position_BT,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            token_B, logp_B = self._sample(logits_BV, live)
            for dialogue, token, logp in zip(live, token_B.tolist(), logp_B.tolist(), strict=True):
                dialogue.new_ids.append(token)
                dialogue.new_logps.append(logp)
                dialogue.reason = self._stop_reason(dialogue)
            keep = [row for row, dialogue in enumerate(live) if dialogue.reason is None]
            next_position_B1 = position_BT[:, -1:] + 1
            mask_BT = torch.cat([mask_BT, mask_BT.new_ones(len(live), 1)], dim=1)
            ids_BT, position_BT = token_B[:, None], next_position_B1
            if len(keep) < len(live):
                index = torch.tensor(keep, dtype=torch.long, device=device)
                live = [live[row] for row in keep]
                if live:
                    cache.batch_select_indices(index)
                ids_BT, mask_BT, position_BT = ids_BT[index], mask_BT[index], position_BT[index]

    def _sample(self, logits_BV: Tensor, live: list[_Dialogue]) -> tuple[Tensor, Tensor]:
        """Draw one token per dialogue; returns (token_B, logp_B)."""
        temperature = self.sampling.temperature
        # fp32: bf16 log-probs differ from the trainer's by more than a clip range.
        logits_BV = logits_BV.float()
        if temperature > 0 and temperature != 1.0:
            logits_BV = logits_BV / temperature
        logp_BV = torch.log_softmax(logits_BV, dim=-1)
        if not torch.isfinite(logp_BV.amax(dim=-1)).all():
            raise GenerationFailure(
                "the model returned non-finite logits; the weights are damaged or the dtype "
                "overflows (try --set model.dtype=float32)"
            )
        if temperature == 0:
            token_B = logp_BV.argmax(dim=-1)
        else:
            uniform_B = torch.tensor(
                _uniforms([d.rng_key for d in live], [len(d.ids) + len(d.new_ids) for d in live]),
                dtype=torch.float64,
            )
            token_B = _inverse_cdf(logp_BV, uniform_B)
        return token_B, logp_BV.gather(1, token_B[:, None])[:, 0]

    def _stop_reason(self, dialogue: _Dialogue) -> TurnStop | None:
        """Whether the turn ended with its latest token."""
        if dialogue.new_ids[-1] in self.policy.eos_ids:
            return TurnStop.EOS
        tail = self.policy.renderer.decode(dialogue.new_ids[-dialogue.scan_tokens :])
        if find_stop(tail, dialogue.stops) is not None:
            return TurnStop.STOP_STRING
        if len(dialogue.new_ids) >= dialogue.max_tokens:
            return TurnStop.MAX_TOKENS
        return None


def _inverse_cdf(logp_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """The token whose cumulative probability first exceeds u: one draw per row, in float64."""
    device = logp_BV.device
    if device.type == "mps":  # which has no float64
        logp_BV = logp_BV.cpu()
    cdf_BV = logp_BV.double().exp().cumsum(dim=-1)
    total_B1 = cdf_BV[:, -1:].contiguous()
    threshold_B1 = uniform_B.to(cdf_BV.device)[:, None] * total_B1
    token_B = torch.searchsorted(cdf_BV, threshold_B1, right=True)[:, 0]
    # A threshold that rounds up to the total must not fall on an impossible last token.
    last_B = torch.searchsorted(cdf_BV, total_B1)[:, 0]
    return torch.minimum(token_B, last_B).to(device)


def _uniforms(keys: Sequence[int], positions: Sequence[int]) -> np.ndarray[Any, np.dtype[Any]]:
    """Uniforms in [0, 1) from (key, position): SplitMix64, so a draw depends on nothing else."""
    with np.errstate(over="ignore"):
        z = np.asarray(keys, np.uint64) + np.asarray(positions, np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    uniform: np.ndarray[Any, np.dtype[Any]] = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform
