"""Layouts: where the tokens of a micro-batch stand in a forward pass, and which rows are wanted.

Owns the padded layout (one row per rollout) and the packed one: a single row without padding, in
which rows of a group that begin with equal ids share these tokens. The tokens form a tree, laid out
depth first; each attends to those above it and to itself (`PackedPlan`). Nothing after the last
trained token is computed. Shapes: B rows, T tokens, N trained tokens, H query heads, K key/value
heads, D head width.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat, takewhile
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from searchrl.engine.model.attention import AttentionPlan, kernel_mask

R = TypeVar("R")

BLOCK = {"cpu": 128}
"""Query rows per call of the attention kernel: smaller, and less is computed to be masked."""

_BLOCK_ELSEWHERE = 1024

_KEPT_COPIES = 2
"""Keys copied per token of a node's children: with more, their attention is computed again."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Tokens of a rollout, and which of them a layout names."""

    ids: list[int]
    """Prompt first."""
    mask: list[bool]
    """True at the tokens whose log-probs are wanted."""


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

    `chosen_BT` is on the CPU: nobody waits for the device to count it. Padding needs no mask: a
    causal model never looks ahead.
    """
    wanted_N = chosen_BT.flatten().nonzero()[:, 0].to(ids_BT.device)
    return Layout(ids_BT, wanted_N - 1, ids_BT.flatten()[wanted_N])


def pad(rollouts: Sequence[TokenRow], device: torch.device) -> Layout:
    """The padded layout of rollouts of any length: one row each."""
    ids_BT, mask_BT = (
        pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        for rows in zip(*((rollout.ids, rollout.mask) for rollout in rollouts), strict=True)
    )
    return padded_layout(ids_BT.to(device), mask_BT)


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


@dataclass(slots=True)
class _Node:
    """Tokens between two branchings of a tree."""

    ids: list[int]
    children: dict[tuple[Hashable, int], _Node] = field(default_factory=dict)
    """By group and first token."""
    parent: int = -1
    """Number of the node above, if there is one."""
    depth: int = 0
    """Tokens above."""
    start: int = 0
    """Index of its first token in the packed row."""


class TokenTree:
    """The computed tokens of rows. Rows of a group share those that they begin with alike."""

    def __init__(
        self, rows: Iterable[TokenRow] = (), groups: Iterable[Hashable] | None = None
    ) -> None:
        self._root = _Node([])
        self.num_tokens = 0
        for row, group in zip(rows, groups or repeat(None), strict=False):
            self.add(row, group)

    def add(self, row: TokenRow, group: Hashable = None) -> None:
        """Add the tokens of a row that are new."""
        ids = _computed_ids(row)
        node, depth = self._root, 0
        while depth < len(ids) and (child := node.children.get((group, ids[depth]))):
            pairs = zip(child.ids, ids[depth:], strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            depth += shared
            if shared < len(child.ids) and depth < len(ids):
                tail = _Node(child.ids[shared:], child.children)
                child.ids, child.children = child.ids[:shared], {(group, tail.ids[0]): tail}
            node = child
        if node.ids and not node.children:  # the row goes on where all others have ended
            node.ids += ids[depth:]
        elif depth < len(ids):
            node.children[group, ids[depth]] = _Node(ids[depth:])
        self.num_tokens += len(ids) - depth

    def lay_out(self) -> list[_Node]:
        """Number the nodes depth first and set their places in the packed row."""
        nodes: list[_Node] = []
        start = 0
        waiting = [*reversed(self._root.children.values())]
        while waiting:
            node = waiting.pop()
            node.start, start = start, start + len(node.ids)
            for child in reversed(node.children.values()):
                child.parent, child.depth = len(nodes), node.depth + len(node.ids)
                waiting.append(child)
            nodes.append(node)
        return nodes

    def indices(self, row: TokenRow, group: Hashable = None) -> list[int]:
        """The index of each computed token of a row in the packed row, after `lay_out`."""
        ids, node = _computed_ids(row), self._root
        places: list[int] = []
        while len(places) < len(ids):
            node = node.children[group, ids[len(places)]]
            places += range(node.start, node.start + len(node.ids))
        return places[: len(ids)]


def _computed_ids(row: TokenRow) -> list[int]:
    """All before the last wanted token, which itself predicts nothing that anybody reads."""
    return row.ids[: max((t for t, is_wanted in enumerate(row.mask) if is_wanted), default=1)]


def pack(
    rows: Sequence[TokenRow], device: torch.device, groups: Sequence[Hashable] | None = None
) -> Layout:
    """The packed layout. Rows of one group share tokens; without `groups` all rows are of one.

    A token that several rows want is named once for each.
    """
    groups = groups or [None] * len(rows)
    tree = TokenTree(rows, groups)
    nodes = tree.lay_out()
    indices: list[int] = []
    targets: list[int] = []
    for row, group in zip(rows, groups, strict=True):
        wanted = [t for t, is_wanted in enumerate(row.mask) if is_wanted]
        places = tree.indices(row, group)
        indices += [places[t - 1] for t in wanted]
        targets += [row.ids[t] for t in wanted]

    def tensor(values: Iterable[int]) -> Tensor:
        return torch.tensor([*values], dtype=torch.long, device=device)

    return Layout(
        tensor(chain.from_iterable(node.ids for node in nodes))[None],
        tensor(indices),
        tensor(targets),
        tensor(d for node in nodes for d in range(node.depth, node.depth + len(node.ids)))[None],
        PackedPlan([len(node.ids) for node in nodes], [node.parent for node in nodes]),
    )


class PackedPlan:
    """Attention of a tree of tokens, without a mask over the whole row.

    The nodes below one node are rows of the same calls, block by block; a row that has ended is
    left out of the blocks behind.

    Args:
        lengths: tokens of each node, in the row's order; none 0.
        parents: number of the node above each; -1: there is none.
    """

    def __init__(self, lengths: Sequence[int], parents: Sequence[int]) -> None:
        self._lengths = list(lengths)
        self._paths: list[tuple[int, ...]] = []
        siblings: dict[int, list[int]] = {}
        for node, parent in enumerate(parents):
            self._paths.append((*self._paths[parent], parent) if parent >= 0 else ())
            # Prompts of several groups differ too much in length to be padded.
            siblings.setdefault(parent if parent >= 0 else ~node, []).append(node)
        self._siblings = list[list[int]]()
        for nodes in siblings.values():
            nodes.sort(key=lambda n: -lengths[n])
            # A probe is not padded to the turn beside which it stands.
            num_long = sum(8 * lengths[n] >= lengths[nodes[0]] for n in nodes)
            self._siblings += filter(None, (nodes[:num_long], nodes[num_long:]))
        self._longest = max(
            (lengths[n] + sum(lengths[m] for m in self._paths[n]) for n in range(len(lengths))),
            default=0,
        )
        self._mask: Tensor | None = None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> Tensor:
        """See `AttentionPlan.attend`; B is 1."""
        heads, kv_heads = query.shape[1], key.shape[1]
        # Queries, keys and values are cut together and once: the gradient of a slice would be as
        # long as the whole row. [T, H + 2 K, D] is how they lie in memory.
        pieces = torch.cat((query[0], key[0], value[0])).transpose(0, 1).split(self._lengths)

        def run(above: Sequence[Tensor], rows: Sequence[Tensor]) -> Sequence[Tensor]:
            query, key, value = _heads_first(_pad(rows), heads, kv_heads)
            if above:
                _, *before = _heads_first(torch.cat([*above])[None], heads, kv_heads)
                key, value = (
                    torch.cat([one.expand(len(rows), -1, -1, -1), mine], dim=2)
                    for one, mine in zip(before, (key, value), strict=True)
                )
            lengths = [len(row) for row in rows]
            return _unpad(self._causal(query, key, value, lengths, scale), lengths)

        run_twice = partial(checkpoint, run, use_reentrant=False, preserve_rng_state=False)
        outputs = list(pieces)
        for nodes in self._siblings:
            above, rows = ([pieces[n] for n in names] for names in (self._paths[nodes[0]], nodes))
            # Kept for the backward pass, copies of what is above would be most of all memory.
            is_light = len(above) < 2 or len(rows) * sum(map(len, above)) <= _KEPT_COPIES * sum(
                map(len, rows)
            )
            parts = (run if is_light else run_twice)(above, rows)
            for node, output in zip(nodes, parts, strict=True):
                outputs[node] = output
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


def _pad(rows: Sequence[Tensor]) -> Tensor:
    """Rows [T, ...], the longest first, as [R, T of the first, ...]."""
    gaps = [len(rows[0]) - len(row) for row in rows]
    parts = [
        part
        for row, gap in zip(rows, gaps, strict=True)
        for part in (row, row.new_zeros((gap, *row.shape[1:])))
    ]
    padded: Tensor = torch.cat(parts).unflatten(0, (len(rows), -1))
    return padded


def _unpad(padded: Tensor, lengths: Sequence[int]) -> Sequence[Tensor]:
    sizes = [size for length in lengths for size in (length, padded.shape[1] - length)]
    parts: Sequence[Tensor] = padded.flatten(0, 1).split(sizes)
    return parts[::2]


def _heads_first(rows: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, ...]:
    """[R, T, H + 2 K, D] -> queries, keys and values [R, heads, T, D]."""
    parts: tuple[Tensor, ...] = rows.transpose(1, 2).split((heads, kv_heads, kv_heads), dim=1)
    return parts
