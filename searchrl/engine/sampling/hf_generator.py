"""The plain Hugging Face generator: stock model, stock cache, one padded batch at a time.

It is the reference that faster generators must agree with, so it is simple rather than fast: a turn
recomputes its sequence, and the cache lives for one turn only. Shapes: B sequences, T tokens, V
vocabulary.
"""

from __future__ import annotations

import torch
from transformers import DynamicCache

from searchrl.core.trajectory import TurnStop
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.draw import draw_tokens, key_tensor
from searchrl.engine.sampling.generator import Dialogues, FinishedTurn, OpenSequence, Sampling
from searchrl.engine.sampling.stops import find_stop_end

_SCAN_EXTRA = 4
"""Tokens beyond a stop string's bytes that are searched for it: a tail that begins inside a
character decodes it wrongly."""


class HFGenerator(Dialogues):
    """Generates with `model(...)` of a stock causal LM, always with the policy's current weights.

    At most `num_slots` sequences are decoded together; `max_length` is not needed here.
    """

    def __init__(
        self, policy: Policy, sampling: Sampling, num_slots: int = 64, max_length: int = 0
    ) -> None:
        super().__init__()
        self.policy = policy
        self.sampling = sampling
        self.batch_size = num_slots
        self.version = policy.version

    def poll(self) -> list[FinishedTurn]:
        """Decode the waiting sequences, longest first, one batch per call."""
        waiting = [s for s in self._sequences.values() if s.is_asked]
        # Equal lengths together need no padding; the order depends on the seed alone.
        waiting.sort(key=lambda s: (-len(s.ids), s.handle))
        if not waiting:
            return []
        with torch.inference_mode(), self.policy.evaluating():
            turns = self._decode(waiting[: self.batch_size])
        return sorted(turns, key=lambda turn: turn.handle)

    def sync(self, policy: Policy) -> int:
        """Take the policy; no cache outlives a turn, so nothing can be stale."""
        self.policy = policy
        self.version = policy.version
        return self.version

    def _decode(self, batch: list[OpenSequence]) -> list[FinishedTurn]:
        """Prefill left-padded, then one token per live sequence and step."""
        device = self.policy.device
        lengths = [len(s.ids) for s in batch]
        width = max(lengths)
        ids_BT = torch.zeros(len(batch), width, dtype=torch.long)
        mask_BT = torch.zeros(len(batch), width, dtype=torch.long)
        for row, sequence in enumerate(batch):
            ids_BT[row, width - lengths[row] :] = torch.tensor(sequence.ids)
            mask_BT[row, width - lengths[row] :] = 1
        ids_BT, mask_BT = ids_BT.to(device), mask_BT.to(device)
        position_BT = (mask_BT.cumsum(-1) - 1).clamp_min(0)
        cache = DynamicCache(config=self.policy.model.config)
        live, turns = list(batch), []
        while live:
            logits_BV = self.policy.model(
                input_ids=ids_BT,
                attention_mask=mask_BT,
                position_ids=position_BT,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            draw = draw_tokens(
                logits_BV,
                self.sampling,
                key_tensor([s.rng_key for s in live]).to(device),
                torch.tensor([len(s.ids) for s in live], device=device),
            )
            keep = []
            tokens, logps, _ = draw.read()
            columns = zip(live, tokens, logps, strict=True)
            for row, (sequence, token, logp) in enumerate(columns):
                sequence.append(token, logp)
                reason = self._stop_reason(sequence)
                if reason is None:
                    keep.append(row)
                else:
                    turns.append(sequence.finish(reason, self.version))
            next_position_B1 = position_BT[:, -1:] + 1
            mask_BT = torch.cat([mask_BT, mask_BT.new_ones(len(live), 1)], dim=1)
            ids_BT, position_BT = draw.token_B[:, None], next_position_B1
            if len(keep) < len(live):
                index = torch.tensor(keep, dtype=torch.long, device=device)
                live = [live[row] for row in keep]
                if live:
                    cache.batch_select_indices(index)
                ids_BT, mask_BT, position_BT = ids_BT[index], mask_BT[index], position_BT[index]
        return turns

    def _stop_reason(self, sequence: OpenSequence) -> TurnStop | None:
        if sequence.new_ids[-1] in self.policy.eos_ids:
            return TurnStop.EOS
        # No token is shorter than a byte, so a stop string never spans more tokens than bytes.
        num_scanned = max((len(s.encode()) for s in sequence.stops), default=0) + _SCAN_EXTRA
        tail = self.policy.renderer.decode(sequence.new_ids[-num_scanned:])
        if find_stop_end(tail, sequence.stops) is not None:
            return TurnStop.STOP_STRING
        if len(sequence.new_ids) >= sequence.max_tokens:
            return TurnStop.MAX_TOKENS
        return None
