"""Layouts: where the tokens of a micro-batch stand in a forward pass, and which rows are wanted.

Owns the padded layout (one row per rollout) and the packed one, a single row without padding in
which rollouts of one prompt share it:

    [prompt, suffix_1 .. suffix_G, next prompt, ...]

Positions restart behind the prompt for every suffix; a suffix attends to its prompt and to itself
(`PackedPlan`). Nothing behind the last trained token is computed. `packing` makes layouts,
`policy` runs them. Shapes: B rows, T tokens, N trained tokens, H query heads, K key/value heads,
D head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from searchrl.engine.attention import AttentionPlan

BLOCK = {"cpu": 128}
"""Query rows per call of the attention kernel: smaller, and less is computed to be masked."""

_BLOCK_ELSEWHERE = 1024


class Rollout(Protocol):
    """What a layout needs to know of a rollout."""

    @property
    def group_id(self) -> str:
        """Rollouts of one group may share their prompt."""
        ...

    @property
    def ids(self) -> list[int]:
        """Prompt first."""
        ...

    @property
    def mask(self) -> list[bool]:
        """True at the tokens whose log-probs are wanted."""
        ...

    @property
    def num_prompt(self) -> int:
        """Tokens before the first the model wrote."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """A forward pass. Hidden state `row_N` (of B * T, row by row) predicts `target_N`."""

    ids_BT: Tensor
    row_N: Tensor
    target_N: Tensor
    position_BT: Tensor | None = None
    plan: AttentionPlan | None = None
    """None: the model's own attention, causal in each row."""


def padded_layout(ids_BT: Tensor, chosen_BT: Tensor) -> Layout:
    """One rollout per row, padded on the right; True in `chosen_BT` (never in column 0): wanted.

    Padding needs no mask: a causal model never looks ahead.
    """
    wanted_N = chosen_BT.flatten().nonzero()[:, 0]
    return Layout(ids_BT, wanted_N - 1, ids_BT.flatten()[wanted_N])


def pack(rollouts: Sequence[Rollout], device: torch.device) -> Layout:
    """The packed layout: neighbours of one group with one prompt share it."""
    ids: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    targets: list[int] = []
    segments: list[tuple[int, list[int]]] = []
    previous: tuple[str, list[int]] | None = None
    prompt_start = 0
    for rollout in rollouts:
        num_prompt = rollout.num_prompt
        prompt = (rollout.group_id, rollout.ids[:num_prompt])
        if prompt != previous:
            previous, prompt_start = prompt, len(ids)
            ids += prompt[1]
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


def num_suffix_tokens(rollout: Rollout) -> int:
    """Tokens of a rollout that are computed behind its prompt."""
    last = max((t for t, is_wanted in enumerate(rollout.mask) if is_wanted), default=0)
    return max(0, last - rollout.num_prompt)


class PackedPlan:
    """Attention of a packed row, one suffix at a time and without a mask over the whole row.

    Args:
        segments: (length of the prompt, lengths of its suffixes, none 0), in the row's order.
    """

    def __init__(self, segments: Sequence[tuple[int, Sequence[int]]]) -> None:
        self._segments = segments
        self._lengths = [n for prompt, suffixes in segments for n in (prompt, *suffixes)]
        self._longest = max(
            (prompt + max(suffixes, default=0) for prompt, suffixes in segments), default=0
        )
        self._mask: Tensor | None = None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> Tensor:
        """See `AttentionPlan.attend`; B is 1."""
        num_heads = key.shape[1]
        # Query heads of one key/value head side by side, key/value heads as rows: [K, H/K, T, D].
        # Split once: the gradient of a slice would be as long as the whole row.
        queries = iter(query[0].unflatten(0, (num_heads, -1)).split(self._lengths, dim=2))
        keys = iter(key[0].split(self._lengths, dim=1))
        values = iter(value[0].split(self._lengths, dim=1))
        outputs: list[Tensor] = []
        for _, suffixes in self._segments:
            key_p, value_p = next(keys), next(values)
            outputs += self._causal(next(queries), key_p, value_p, scale)
            for _ in suffixes:
                key_s = torch.cat([key_p, next(keys)], dim=1)
                value_s = torch.cat([value_p, next(values)], dim=1)
                outputs += self._causal(next(queries), key_s, value_s, scale)
        return torch.cat(outputs, dim=2).flatten(0, 1)[None]

    def _causal(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> list[Tensor]:
        """Attention of the last positions of `key`, block by block: later keys are left out."""
        block = BLOCK.get(query.device.type, _BLOCK_ELSEWHERE)
        group, length = query.shape[1], query.shape[2]
        stop = key.shape[1] - length
        key, value = (x[:, None].expand(-1, group, -1, -1) for x in (key, value))
        outputs = []
        for part in query.split(block, dim=2):
            stop += part.shape[2]
            mask = self._block_mask(part, stop, block)
            outputs.append(
                F.scaled_dot_product_attention(
                    part, key[:, :, :stop], value[:, :, :stop], attn_mask=mask, scale=scale
                )
            )
        return outputs

    def _block_mask(self, query: Tensor, num_keys: int, block: int) -> Tensor:
        """[rows, num_keys]: everything, but in the last columns a triangle. A view of one mask."""
        if self._mask is None:
            is_seen = torch.ones(block, self._longest + block, dtype=torch.bool).tril(self._longest)
            mask = is_seen.to(query.device)
            if query.device.type == "cpu":
                # There, each call would turn a mask of bools into one of numbers.
                mask = torch.zeros(is_seen.shape, dtype=query.dtype).masked_fill_(
                    ~is_seen, -torch.inf
                )
            self._mask = mask
        rows = query.shape[2]
        end = self._longest + rows
        return self._mask[:rows, end - num_keys : end]
