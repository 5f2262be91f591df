"""The slot cache: keys and values of many dialogues side by side, each growing in its own slot.

A slot is a row of `[slot, head, position, width]` tensors, one pair per layer; nothing is paged.
What stands beyond a slot's length is never read. Shapes: B rows of a forward pass, T new tokens, S
cached positions, K key/value heads, D head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from searchrl.engine.model.attention import grouped_attention, mask_for

_GROWTH = 128
"""Positions that are added at once."""

_KEPT_BYTES = 1 << 27
"""Bytes up to which an empty cache keeps its memory: fresh pages cost time."""


class CacheShape(NamedTuple):
    """Shape of one cached position."""

    num_layers: int
    num_heads: int
    width: int
    dtype: torch.dtype

    @classmethod
    def of(cls, model: Any) -> CacheShape:
        """The shape for a model's attention layers."""
        config = model.config
        heads = int(config.num_attention_heads)
        width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
        return cls(int(config.num_hidden_layers), kv_heads, width, dtype)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token."""
        return 2 * self.num_layers * self.num_heads * self.width * self.dtype.itemsize


class SlotCache:
    """Keys and values of `num_slots` dialogues of at most `max_length` tokens.

    Memory is taken as dialogues grow, `_GROWTH` positions at a time.
    """

    def __init__(
        self, shape: CacheShape, num_slots: int, max_length: int, device: torch.device
    ) -> None:
        self.shape = shape
        self.num_slots = num_slots
        self.max_length = max_length
        self.device = device
        self.length = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    @property
    def num_bytes(self) -> int:
        """Bytes held now."""
        held = self.length + 1 if self.length else 0
        return self.num_slots * held * self.shape.bytes_per_token

    @property
    def scratch(self) -> int:
        """A position past every dialogue, for values that are written and never read."""
        return self.length

    def reserve(self, length: int) -> None:
        """Make room for `length` positions in every slot."""
        if length <= self.length:
            return
        grown = min(self.max_length, -(-length // _GROWTH) * _GROWTH)
        size = (self.num_slots, self.shape.num_heads, grown + 1, self.shape.width)
        for layer in range(self.shape.num_layers):
            for store in (self._keys, self._values):
                # Zeros, not garbage: a masked NaN would still spoil the softmax.
                fresh = torch.zeros(size, dtype=self.shape.dtype, device=self.device)
                if self.length:
                    fresh[:, :, : self.length] = store[layer][:, :, : self.length]
                    store[layer] = fresh
                else:
                    store.append(fresh)
        self.length = grown

    def clear(self) -> None:
        """Free the memory if it is more than a little."""
        if self.num_bytes > _KEPT_BYTES:
            self._keys, self._values, self.length = [], [], 0

    def fork(self, source: int, targets: Sequence[int], length: int) -> None:
        """Copy the first `length` positions of one slot to others."""
        index = torch.tensor(list(targets), device=self.device)
        for store in (*self._keys, *self._values):
            store[index, :, :length] = store[source, :, :length]

    def exchange(self, ones: Sequence[int], others: Sequence[int], length: int) -> None:
        """Exchange the first `length` positions of each of `ones` with those of one of `others`."""
        there = torch.tensor([*others, *ones], device=self.device)
        here = torch.tensor([*ones, *others], device=self.device)
        for store in (*self._keys, *self._values):
            store[here, :, :length] = store[there, :, :length]

    def layer(self, number: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, each [slot, K, position, D]."""
        return self._keys[number], self._values[number]


class SlotPlan:
    """Attention of one forward pass over the cache: writes the new tokens, reads all before them.

    Args:
        cache: with room for every position written.
        rows: the slots of the batch, all different.
        positions_BT: where each new token goes; padding goes to `cache.scratch`.
        span: key positions read; at least the largest position + 1.
    """

    def __init__(
        self, cache: SlotCache, rows: Sequence[int], positions_BT: Tensor, span: int
    ) -> None:
        self._cache = cache
        self._span = span
        self._positions_BT = positions_BT
        # Neighbouring slots are read in place; others are copied together.
        run = slice(rows[0], rows[0] + len(rows))
        is_run = list(rows) == list(range(run.start, run.stop))
        self._read: slice | Tensor = run if is_run else torch.tensor(rows, device=cache.device)
        self._rows_B1 = torch.arange(cache.num_slots, device=cache.device)[self._read, None]
        key_S = torch.arange(span, device=cache.device)
        self._is_past_B1TS = (key_S <= positions_BT[:, :, None])[:, None]
        self._mask: Tensor | None = None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> Tensor:
        """See `AttentionPlan.attend`."""
        keys, values = self._cache.layer(layer)
        keys[self._rows_B1, :, self._positions_BT] = key.transpose(1, 2)
        values[self._rows_B1, :, self._positions_BT] = value.transpose(1, 2)
        if self._mask is None:
            self._mask = mask_for(query, key, self._is_past_B1TS)
        keys, values = (store[self._read, :, : self._span] for store in (keys, values))
        return grouped_attention(query, keys, values, self._mask, scale)
