"""Layouts: where the tokens of a micro-batch stand in a forward pass, and which rows are wanted.

Owns the padded layout (one row per rollout) and the packed one, a single row without padding in
which rollouts of one prompt share it:

    [prompt, suffix_1 .. suffix_G, next prompt, ...]

A suffix attends to its prompt and to itself (`PackedPlan`). Nothing after the last trained token is
computed. Shapes: B rows, T tokens, N trained tokens, H query heads, K key/value heads, D head
width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from searchrl.engine.model.attention import AttentionPlan, kernel_mask

R = TypeVar("R")

BLOCK = {"cpu": 128}
"""Query rows per call of the attention kernel: smaller, and less is computed to be masked."""

_BLOCK_ELSEWHERE = 1024


@dataclass(frozen=True, slots=True)
class TokenRow:
    """What a layout needs to know of a rollout."""

    ids: list[int]
    """Prompt first."""
    mask: list[bool]
    """True at the tokens whose log-probs are wanted."""
    num_prompt: int
    """Tokens before the first the model wrote."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A forward pass. Hidden state `row_N` (of B * T, row by row) predicts `target_N`."""

    ids_BT: Tensor
    row_N: Tensor
    target_N: Tensor
    position_BT: Tensor | None = None
    plan: AttentionPlan | None = None
    """None: the model's own attention, causal in each row."""

    @property
    def num_computed(self) -> int:
        """Tokens that are computed, padding included."""
        return self.ids_BT.numel()


def padded_layout(ids_BT: Tensor, chosen_BT: Tensor) -> Layout:
    """One rollout per row, padded on the right; True in `chosen_BT` (never in column 0): wanted.

    Padding needs no mask: a causal model never looks ahead.
    """
    wanted_N = chosen_BT.flatten().nonzero()[:, 0]
    return Layout(ids_BT, wanted_N - 1, ids_BT.flatten()[wanted_N])


def pad(rollouts: Sequence[TokenRow], device: torch.device) -> Layout:
    """The padded layout of rollouts of any length: one row each."""
    shape = (len(rollouts), max(len(rollout.ids) for rollout in rollouts))
    ids_BT = torch.zeros(shape, dtype=torch.long)
    mask_BT = torch.zeros(shape, dtype=torch.bool)
    for row, rollout in enumerate(rollouts):
        ids_BT[row, : len(rollout.ids)] = torch.tensor(rollout.ids)
        mask_BT[row, : len(rollout.ids)] = torch.tensor(rollout.mask)
    return padded_layout(ids_BT.to(device), mask_BT.to(device))


def padded_batches(
    rows: Iterable[R], width: Callable[[R], int], max_tokens: int
) -> Iterator[list[R]]:
    """Rows of at most `max_tokens` tokens together, padding included; a wider one is alone.

    Widest first: neighbours of like width need little padding.
    """
    ordered = sorted(rows, key=lambda row: -width(row))
    while ordered:
        count = max(1, max_tokens // max(1, width(ordered[0])))
        yield ordered[:count]
        ordered = ordered[count:]


def pack(rollouts: Sequence[TokenRow], device: torch.device) -> Layout:
    """The packed layout: neighbours with one prompt share it."""
    ids: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    targets: list[int] = []
    segments: list[tuple[int, list[int]]] = []
    previous: list[int] | None = None
    prompt_start = 0
    for rollout in rollouts:
        num_prompt = rollout.num_prompt
        prompt = rollout.ids[:num_prompt]
        if prompt != previous:
            previous, prompt_start = prompt, len(ids)
            ids += prompt
            positions += range(num_prompt)
            segments.append((num_prompt, []))
        wanted = [t for t, is_wanted in enumerate(rollout.mask) if is_wanted]
        # The last wanted token itself predicts nothing that anybody reads.
        stop = num_suffix_tokens(rollout) + num_prompt
        offset = len(ids) - num_prompt
        rows += [t - 1 + (offset if t > num_prompt else prompt_start) for t in wanted]
        targets += [rollout.ids[t] for t in wanted]
        ids += rollout.ids[num_prompt:stop]
        positions += range(num_prompt, stop)
        segments[-1][1].append(stop - num_prompt)

    def tensor(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    return Layout(
        tensor(ids)[None],
        tensor(rows),
        tensor(targets),
        tensor(positions)[None],
        PackedPlan([(prompt_len, [n for n in suffixes if n]) for prompt_len, suffixes in segments]),
    )


def num_suffix_tokens(rollout: TokenRow) -> int:
    """Tokens of a rollout that are computed behind its prompt."""
    last = max((t for t, is_wanted in enumerate(rollout.mask) if is_wanted), default=0)
    return max(0, last - rollout.num_prompt)


@dataclass(frozen=True, slots=True)
class _Bundle:
    """A prompt and its suffixes, the longest first: rows that are attended to together."""

    num_prompt: int
    lengths: list[int]
    place: list[int]
    """Where among `lengths` each suffix of the packed row is."""

    @classmethod
    def of(cls, num_prompt: int, suffixes: Sequence[int]) -> _Bundle:
        order = sorted(range(len(suffixes)), key=lambda i: -suffixes[i])
        place = [0] * len(order)
        for rank, i in enumerate(order):
            place[i] = rank
        return cls(num_prompt, [suffixes[i] for i in order], place)

    @property
    def width(self) -> int:
        return self.lengths[0] if self.lengths else 0

    def pad(self, suffixes: Sequence[Tensor]) -> Tensor:
        """Suffixes of the packed row, each [T, ...], as rows [R, width, ...]."""
        parts: list[Tensor] = [suffixes[0]] * (2 * len(suffixes))
        for suffix, rank in zip(suffixes, self.place, strict=True):
            gap = self.width - self.lengths[rank]
            parts[2 * rank : 2 * rank + 2] = suffix, suffix.new_zeros((gap, *suffix.shape[1:]))
        rows: Tensor = torch.cat(parts).unflatten(0, (len(suffixes), -1))
        return rows

    def unpad(self, rows: Tensor) -> list[Tensor]:
        """Undo `pad`."""
        sizes = [size for n in self.lengths for size in (n, self.width - n)]
        parts = rows.flatten(0, 1).split(sizes)
        return [parts[2 * rank] for rank in self.place]


class PackedPlan:
    """Attention of a packed row, without a mask over the whole row.

    The suffixes of a prompt are rows of the same calls, block by block; a row that has ended is
    left out of the blocks behind.

    Args:
        segments: (length of the prompt, lengths of its suffixes, none 0), in the row's order.
    """

    def __init__(self, segments: Sequence[tuple[int, Sequence[int]]]) -> None:
        self._lengths = [n for prompt, suffixes in segments for n in (prompt, *suffixes)]
        self._bundles = [_Bundle.of(prompt, suffixes) for prompt, suffixes in segments]
        self._longest = max((b.num_prompt + b.width for b in self._bundles), default=0)
        self._mask: Tensor | None = None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> Tensor:
        """See `AttentionPlan.attend`; B is 1."""
        heads, kv_heads = query.shape[1], key.shape[1]
        # Queries, keys and values are cut together and once: the gradient of a slice would be as
        # long as the whole row. [T, H + 2 K, D] is how they lie in memory.
        row = torch.cat((query[0], key[0], value[0])).transpose(0, 1)
        pieces = iter(row.split(self._lengths))
        outputs: list[Tensor] = []
        for bundle in self._bundles:
            query_p, key_p, value_p = _heads_first(next(pieces)[None], heads, kv_heads)
            lengths = [bundle.num_prompt]
            outputs.append(self._causal(query_p, key_p, value_p, lengths, scale)[0])
            suffixes = [next(pieces) for _ in bundle.lengths]
            if not suffixes:
                continue
            query_s, key_s, value_s = _heads_first(bundle.pad(suffixes), heads, kv_heads)
            key_s, value_s = (
                torch.cat([before.expand(len(suffixes), -1, -1, -1), own], dim=2)
                for before, own in ((key_p, key_s), (value_p, value_s))
            )
            rows = self._causal(query_s, key_s, value_s, bundle.lengths, scale)
            outputs += bundle.unpad(rows)
        return torch.cat(outputs).transpose(0, 1)[None]

    def _causal(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], scale: float | None
    ) -> Tensor:
        """[R, T, H, D]: attention of the last T positions of the keys, causal, block by block.

        Later keys are left out of a block, and rows that have ended (zeros there). `lengths` of
        the rows do not grow.
        """
        block = BLOCK.get(query.device.type, _BLOCK_ELSEWHERE)
        num_rows, kv_heads = key.shape[:2]
        stop = key.shape[2] - query.shape[2]
        # Query heads of one key/value head side by side, key/value heads as rows: none is copied.
        query = query.unflatten(1, (kv_heads, -1))
        outputs = []
        for number, part in enumerate(query.split(block, dim=3)):
            count = sum(n > number * block for n in lengths)
            stop += part.shape[3]
            part = part[:count].flatten(0, 1)
            key_n, value_n = (
                x[:count, :, :stop].flatten(0, 1)[:, None].expand(-1, part.shape[1], -1, -1)
                for x in (key, value)
            )
            mask = self._block_mask(part, stop, block)
            output = F.scaled_dot_product_attention(part, key_n, value_n, mask, scale=scale)
            output = output.unflatten(0, (count, kv_heads)).permute(0, 3, 1, 2, 4).flatten(2, 3)
            if count < num_rows:
                output = F.pad(output, (0, 0, 0, 0, 0, 0, 0, num_rows - count))
            outputs.append(output)
        return torch.cat(outputs, dim=1)

    def _block_mask(self, query: Tensor, num_keys: int, block: int) -> Tensor:
        """[rows, num_keys]: everything, but in the last columns a triangle. A view of one mask."""
        if self._mask is None:
            is_seen = torch.ones(block, self._longest + block, dtype=torch.bool).tril(self._longest)
            self._mask = kernel_mask(is_seen.to(query.device), query.dtype)
        rows = query.shape[2]
        end = self._longest + rows
        return self._mask[:rows, end - num_keys : end]


def _heads_first(rows: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, ...]:
    """[R, T, H + 2 K, D] -> queries, keys and values [R, heads, T, D]."""
    parts: tuple[Tensor, ...] = rows.transpose(1, 2).split((heads, kv_heads, kv_heads), dim=1)
    return parts
