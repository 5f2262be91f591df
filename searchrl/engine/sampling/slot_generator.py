"""The slot engine: many sequences in one cache, one token for all of them per tick.

A group's prompt is computed once and forked. Observations are appended to what is cached. A free
slot is refilled at once. What is decoded together follows from the order of calls alone, never from
a clock, so that a run repeats bit for bit. Shapes: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from searchrl.core.trajectory import TurnStop
from searchrl.engine.model.attention import attending
from searchrl.engine.model.layout import padded_batches
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.draw import draw_tokens, key_tensor
from searchrl.engine.sampling.generator import Experts, FinishedTurn, Handle, OpenSequence, Sampling
from searchrl.engine.sampling.slots import CacheShape, SlotCache, SlotPlan
from searchrl.engine.sampling.stops import START, STOPPED, StopTable, vocabulary_bytes
from searchrl.errors import PolicyError

_EXTEND_SHARE = 8
"""Observations wait until one slot in so many has one (or nothing is left to decode), because
together they cost one pass."""

_READY_SHARE = 0.75
"""Rows move together when fewer than this share of the decoded rows have a turn to decode."""


@dataclass(slots=True)
class SlotStats:
    """Work of the engine since it was made; `slot_use` is the share of rows not wasted."""

    num_prefilled: int = 0
    """Prompt tokens computed: once per group."""
    num_appended: int = 0
    """Observation tokens (and the last token before each) computed: once per group if alike."""
    num_decoded: int = 0
    """Tokens sampled."""
    num_row_ticks: int = 0
    """Rows of all ticks, idle ones included."""
    sum_log_mass: float = 0.0
    """Log of the probability that truncation left to draw from, summed over sampled tokens."""

    def restart(self) -> None:
        """Count from 0 again."""
        for one in fields(self):
            setattr(self, one.name, one.default)

    @property
    def slot_use(self) -> float:
        """Sampled tokens per row decoded."""
        return self.num_decoded / max(1, self.num_row_ticks)


@dataclass(slots=True, eq=False, kw_only=True)
class SlotSequence(OpenSequence):
    """A sequence that may have a slot with keys and values of its first `cached` ids."""

    group: int
    num_shared: int
    """Prompt tokens that the group shares in the cache: all but the last."""
    cached: int = 0
    slot: int = -1
    """-1: none yet."""
    stop_state: int = 0

    @property
    def num_pending(self) -> int:
        """Ids that have no keys and values yet."""
        return len(self.ids) - self.cached


def pass_tokens(device: torch.device) -> int:
    """Most tokens of one pass over prompts or observations.

    Rows are padded to the longest one: a CPU is as fast with few rows, and pads less.
    """
    return 2048 if device.type == "cpu" else 8192


class SlotGenerator:
    """Continuous batching over a slot cache, under the stock model.

    Args:
        policy: the model and tokenizer; a cache never outlives its weights.
        sampling: temperature and truncation.
        num_slots: sequences held at the same time.
        max_length: most tokens of one sequence.

    Raises:
        PolicyError: if it cannot handle the model's attention or vocabulary; says why.
    """

    def __init__(
        self,
        policy: Policy,
        sampling: Sampling,
        num_slots: int = 64,
        max_length: int = 4096,
    ) -> None:
        if problem := policy.find_packing_fault():
            raise PolicyError(f"the slot engine cannot run this model: {problem}")
        if not policy.has_plain_head:
            raise PolicyError(
                "the slot engine cannot run this model: its logits are scaled or capped behind its "
                "head"
            )
        self.policy = policy
        self.sampling = sampling
        self.num_slots = num_slots
        self.version = policy.version
        self.stats = SlotStats()
        self._weights = policy.weights_stamp()
        shape = CacheShape.of(policy.base_model)
        self._cache = SlotCache(shape, num_slots, max_length, policy.device)
        self._vocabulary = vocabulary_bytes(policy.tokenizer, policy.vocab_size)
        self._tables: dict[tuple[str, ...], StopTable] = {}
        self._sequences: dict[Handle, SlotSequence] = {}
        self._queue: deque[SlotSequence] = deque()
        self._held: list[SlotSequence | None] = []
        """Sequence of each slot; None for a free one."""
        self._prompts: list[int] = []
        """Group whose prompt each slot begins with, even after the end of its sequence."""
        self._numbers, self._groups = itertools.count(), itertools.count()

    def open(
        self, prompt_ids: Sequence[int], n: int, rng_keys: Sequence[int], experts: Experts = None
    ) -> list[Handle]:
        """See `Generator.open`."""
        group, num_shared = next(self._groups), len(prompt_ids) - 1
        handles = [Handle(next(self._numbers)) for _ in range(n)]
        for handle, key in zip(handles, rng_keys, strict=True):
            self._sequences[handle] = SlotSequence(
                handle, list(prompt_ids), key, group=group, num_shared=num_shared
            )
            self._queue.append(self._sequences[handle])
        return handles

    def submit(
        self, handle: Handle, append_ids: Sequence[int], stops: Sequence[str], max_tokens: int
    ) -> None:
        """See `Generator.submit`."""
        sequence = self._sequences[handle]
        sequence.ask(append_ids, stops, max_tokens)
        sequence.stop_state = START

    def poll(self) -> list[FinishedTurn]:
        """Decode until a turn is finished; several may finish with the same token."""
        if self.policy.weights_stamp() != self._weights:
            self.sync(self.policy)
        with torch.inference_mode(), self.policy.evaluating(), attending(self.policy.base_model):
            while True:
                self._admit()
                self._extend()
                ready = [
                    d for d in self._held if d is not None and d.is_asked and d.num_pending == 1
                ]
                if not ready:
                    return []
                finished = self._decode(ready)
                if finished:
                    return finished

    def close(self, handle: Handle) -> None:
        """See `Generator.close`; the slot is free for the next sequence."""
        sequence = self._sequences.pop(handle, None)
        if sequence is None:
            return
        if sequence.slot < 0:
            self._queue.remove(sequence)
        else:
            self._held[sequence.slot] = None
        if not self._sequences:
            # Nothing is in flight: give all slots and their memory back.
            self._held, self._prompts = [], []
            self._cache.clear()

    def sync(self, policy: Policy) -> int:
        """Take the policy's weights; what was cached under others is dropped."""
        self.policy = policy
        self.version = policy.version
        self._weights = policy.weights_stamp()
        self._prompts = [-1] * len(self._prompts)
        for sequence in self._sequences.values():
            sequence.cached = 0
        return self.version

    def stops_in(self, ids: Sequence[int], stops: Sequence[str]) -> bool:
        """Return True if a turn of these ids would end with one of the stop strings."""
        return self._table(tuple(stops)).find_end(ids) is not None

    def _admit(self) -> None:
        """Give free slots to sequences in the queue, in order, each with its group's prompt."""
        free = [slot for slot, held in enumerate(self._held) if held is None]
        admitted: list[SlotSequence] = []
        while self._queue and (free or len(self._held) < self.num_slots):
            sequence = self._queue.popleft()
            if not free:
                free.append(len(self._held))
                self._held.append(None)
                self._prompts.append(-1)
            # A slot that a sibling left begins with the prompt already.
            place = next((i for i, s in enumerate(free) if self._prompts[s] == sequence.group), 0)
            sequence.slot = free.pop(place)
            self._held[sequence.slot] = sequence
            admitted.append(sequence)
        self._prefill(admitted)

    def _prefill(self, admitted: Sequence[SlotSequence]) -> None:
        """Compute the prompts that no slot holds yet, one row per group, and fork the others."""
        leads: dict[int, int] = {
            group: slot
            for slot, group in reversed(list(enumerate(self._prompts)))
            if not any(d.slot == slot and d.group != group for d in admitted)
        }
        fresh = []
        for sequence in admitted:
            if sequence.num_shared and sequence.group not in leads:
                leads[sequence.group] = sequence.slot
                fresh.append(sequence)
        self.stats.num_prefilled += sum(d.num_shared for d in fresh)
        self._compute([(d, d.num_shared) for d in fresh])
        copies: dict[int, list[int]] = {}
        for sequence in admitted:
            if sequence.num_shared:
                lead = leads[sequence.group]
                if sequence.slot != lead and self._prompts[sequence.slot] != sequence.group:
                    copies.setdefault(lead, []).append(sequence.slot)
                sequence.cached = sequence.num_shared
            self._prompts[sequence.slot] = sequence.group
        for lead, slots in copies.items():
            group = self._prompts[lead]
            length = next(d.num_shared for d in admitted if d.group == group)
            self._cache.fork(lead, slots, length)

    def _extend(self) -> None:
        """Append observations to the cache, all but the last token of each sequence.

        Of siblings that wrote the same and read the same, one is computed and the others copy it.
        """
        waiting = [d for d in self._held if d is not None and d.is_asked and d.num_pending > 1]
        if not waiting:
            return
        decoding = sum(d is not None and d.is_asked for d in self._held) - len(waiting)
        if decoding and len(waiting) * _EXTEND_SHARE < len(self._held):
            return
        alike: dict[tuple[int, ...], list[SlotSequence]] = {}
        for sequence in waiting:
            alike.setdefault(tuple(sequence.ids[:-1]), []).append(sequence)
        leads = [(siblings[0], len(ids)) for ids, siblings in alike.items()]
        self.stats.num_appended += sum(stop - lead.cached for lead, stop in leads)
        self._compute(leads)
        for lead, *others in alike.values():
            if others:
                self._cache.fork(lead.slot, [d.slot for d in others], lead.cached)
                for sequence in others:
                    sequence.cached = lead.cached

    def _compute(self, targets: Sequence[tuple[SlotSequence, int]]) -> None:
        ordered = sorted(targets, key=lambda one: one[0].handle)
        max_tokens = pass_tokens(self.policy.device)
        for batch in padded_batches(ordered, lambda one: one[1] - one[0].cached, max_tokens):
            width = max(stop - d.cached for d, stop in batch)
            span = max(stop for _, stop in batch)
            self._cache.reserve(span)
            ids_BT = torch.zeros(len(batch), width, dtype=torch.long)
            position_BT = torch.full((len(batch), width), self._cache.scratch)
            for row, (sequence, stop) in enumerate(batch):
                count = stop - sequence.cached
                ids_BT[row, :count] = torch.tensor(sequence.ids[sequence.cached : stop])
                position_BT[row, :count] = torch.arange(sequence.cached, stop)
            sent_2BT = torch.stack((ids_BT, position_BT)).to(self.policy.device)
            self._forward(sent_2BT, [d.slot for d, _ in batch], span)
            for sequence, stop in batch:
                sequence.cached = stop

    def _decode(self, ready: list[SlotSequence]) -> list[FinishedTurn]:
        ready = self._bring_forward(ready)
        slots = [d.slot for d in ready]
        num_rows = 1 + max(slots)
        self._cache.reserve(max(len(d.ids) for d in ready))
        # A row that is not ready computes a token that nobody reads. One transfer each way: a wait
        # for the device costs as much as many small operations.
        sent_4B = torch.zeros(4, num_rows, dtype=torch.long)
        sent_4B[1] = self._cache.scratch
        sent_4B[0, slots] = torch.tensor([d.ids[-1] for d in ready])
        sent_4B[1, slots] = torch.tensor([len(d.ids) - 1 for d in ready])
        sent_4B[2, slots] = key_tensor([d.rng_key for d in ready])
        sent_4B[3, : len(slots)] = torch.tensor(slots)
        sent_4B = sent_4B.to(self.policy.device)
        span = max(len(d.ids) for d in ready)
        hidden_BD = self._forward(sent_4B[:2, :, None], range(num_rows), span)[:, 0]
        slot_R = sent_4B[3, : len(slots)]
        _, position_R, key_R, _ = sent_4B[:, slot_R]
        logits_RV = self.policy.head(hidden_BD[slot_R])
        draw = draw_tokens(logits_RV, self.sampling, key_R, position_R + 1)
        tokens, logps, log_mass = draw.read()
        self.stats.num_row_ticks += num_rows
        self.stats.num_decoded += len(ready)
        self.stats.sum_log_mass += log_mass
        return self._record(ready, tokens, logps)

    def _record(
        self, ready: Sequence[SlotSequence], tokens: list[int], logps: list[float]
    ) -> list[FinishedTurn]:
        """Append the tokens drawn; return the turns that ended with them, in order of slots."""
        finished = []
        for sequence, token, logp in zip(ready, tokens, logps, strict=True):
            sequence.cached = len(sequence.ids)
            sequence.append(token, logp)
            reason = self._stop_reason(sequence, token)
            if reason is not None:
                finished.append(sequence.finish(reason, self.version))
        return finished

    def _stop_reason(self, sequence: SlotSequence, token: int) -> TurnStop | None:
        if token in self.policy.eos_ids:
            return TurnStop.EOS
        sequence.stop_state = self._table(sequence.stops).feed(sequence.stop_state, token)
        if sequence.stop_state == STOPPED:
            return TurnStop.STOP_STRING
        if len(sequence.new_ids) >= sequence.max_tokens:
            return TurnStop.MAX_TOKENS
        return None

    def _table(self, stops: tuple[str, ...]) -> StopTable:
        if stops not in self._tables:
            self._tables[stops] = StopTable(self._vocabulary, stops)
        return self._tables[stops]

    def _bring_forward(self, ready: list[SlotSequence]) -> list[SlotSequence]:
        """Give ready sequences the first slots if too many rows are idle; in slot order.

        Idle rows between them are computed, too: those of sequences that ended, or that wait for
        their environment.
        """
        num_ready = len(ready)
        if num_ready > _READY_SHARE * (1 + ready[-1].slot):
            return ready
        taken = {d.slot for d in ready}
        gaps = [slot for slot in range(num_ready) if slot not in taken]
        far = [slot for slot in sorted(taken) if slot >= num_ready]
        moved = (self._held[slot] for slot in (*gaps, *far))
        self._cache.exchange(gaps, far, max(d.cached for d in moved if d is not None))
        for one, other in zip(gaps, far, strict=True):
            self._held[one], self._held[other] = self._held[other], self._held[one]
            self._prompts[one], self._prompts[other] = self._prompts[other], self._prompts[one]
            for slot in (one, other):
                held = self._held[slot]
                if held is None:
                    self._prompts[slot] = -1  # it may have been longer than what was exchanged
                else:
                    held.slot = slot
        while not self._queue and self._held[-1] is None:
            self._held.pop()
            self._prompts.pop()
        return sorted(ready, key=lambda d: d.slot)

    def _forward(self, sent_2BT: Tensor, slots: Sequence[int], span: int) -> Tensor:
        """Hidden states [B, T, D] of new tokens; their keys and values go into the cache.

        `sent_2BT` are ids and positions, on the device.
        """
        ids_BT, position_BT = sent_2BT
        plan = SlotPlan(self._cache, slots, position_BT, span)
        # A model may have no position as large as the scratch one.
        known_BT = position_BT.where(position_BT < self._cache.scratch, 0)
        return self.policy.hidden(ids_BT, known_BT, plan)
