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

import torch
from transformers import DynamicCache

from searchrl.contracts import Expert
from searchrl.core.trajectory import TurnStop
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.rendering import find_stop
from searchrl.engine.sampling.draw import draw_tokens, key_tensor
from searchrl.engine.sampling.generator import FinishedTurn, Handle, Sampling

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
        num_slots: most dialogues decoded together.
        max_length: not needed here.
    """

    def __init__(
        self, policy: Policy, sampling: Sampling, num_slots: int = 64, max_length: int = 0
    ) -> None:
        self.policy = policy
        self.sampling = sampling
        self.batch_size = num_slots
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
            token_B, logp_B, _ = draw_tokens(
                logits_BV,
                self.sampling,
                key_tensor([d.rng_key for d in live], device),
                torch.tensor([len(d.ids) + len(d.new_ids) for d in live], device=device),
            )
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
