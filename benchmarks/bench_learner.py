"""How long an update takes: rollouts packed behind one prompt per group, and padded.

    python benchmarks/bench_learner.py [--model SHAPE] [--json FILE]

Random weights and ids, one process: both ways see the same rollouts in turn, so that whatever else
the machine does hits both. A time is the fastest of some rounds. `tokens` are those that the
model computes, padding included.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config
from workload import OurSide, Workload, fastest, make_random_policy, make_trajectories

SHAPES = {"4x128": (4, 128, 1024), "6x160": (6, 160, 2560)}
"""Layers, hidden size, vocabulary: those of small models that train on a CPU."""

GROUP = 8


def measure(shape: str, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds per update and tokens computed, both ways."""
    num_layers, hidden, vocab = SHAPES[shape]
    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=hidden * 5 // 2,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=1 if hidden // 32 % 2 else 2,
        head_dim=32,
        tie_word_embeddings=True,
    )
    policy = make_random_policy(config, args.device)
    # Two turns, most of them short, with an observation between them.
    work = Workload(args.groups, GROUP, 80, 80, 2, 80, is_skewed=True)
    trajectories = make_trajectories(work, vocab, seed=0)
    tokens = args.micro_batch_tokens
    sides = {
        way: OurSide(policy, work, [], micro_batch_tokens=tokens, is_plain=way == "padded")
        for way in ("padded", "packed")
    }
    row: dict[str, Any] = {"shape": shape, "rollouts": len(trajectories)}
    for way, side in sides.items():
        row |= {f"{way}_s": float("inf"), f"{way}_tokens": side.num_trained(trajectories)}
    for _ in range(args.rounds):
        for way, side in sides.items():
            seconds = fastest(policy.device, partial(side.update, trajectories))
            row[f"{way}_s"] = min(row[f"{way}_s"], seconds)
    return row | {"ratio": row["padded_s"] / row["packed_s"]}


def main() -> None:
    """Measure, print a table, write the JSON if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", choices=SHAPES, action="append", help="default: all shapes")
    parser.add_argument("--groups", type=int, default=8, help=f"groups of {GROUP} rollouts")
    parser.add_argument("--micro-batch-tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="write the rows here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = [measure(shape, args) for shape in args.model or SHAPES]
    print(f"{'model':8}{'rollouts':>9}{'padded s':>10}{'packed s':>10}{'ratio':>7}{'tokens':>18}")
    for row in rows:
        tokens = f"{row['padded_tokens']:,} → {row['packed_tokens']:,}"
        print(
            f"{row['shape']:8}{row['rollouts']:>9}{row['padded_s']:>10.2f}{row['packed_s']:>10.2f}"
            f"{row['ratio']:>7.2f}{tokens:>18}"
        )
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
