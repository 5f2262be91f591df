"""How long an update takes: rollouts packed behind one prompt per group, and padded.

    python benchmarks/bench_learner.py [--model SHAPE] [--json FILE]

Random weights and ids, one process: both ways see the same rollouts in turn, so that whatever else
the machine does hits both. A time is the fastest of some rounds. `tokens` are those that the
model computes, padding included.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from searchrl.algorithms.builtin import make_grpo
from searchrl.config.sections import AlgorithmConfig, OptimConfig
from searchrl.core.group import Group, TrainItem
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.learning.batches import micro_batches
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.packing import pack_step
from searchrl.engine.model.policy import Policy

SHAPES = {"4x128": (4, 128, 1024), "6x160": (6, 160, 2560)}
"""Layers, hidden size, vocabulary: those of small models that train on a CPU."""

GROUP, PROMPT, SUFFIX = 8, (60, 100), (100, 400)


def make_policy(shape: str, device: torch.device) -> Policy:
    """A Qwen3 with random weights, all of them trained."""
    num_layers, hidden, vocab = SHAPES[shape]
    torch.manual_seed(0)
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
    unused: Any = None
    return Policy(
        model=Qwen3ForCausalLM(config).to(device).eval(),
        tokenizer=unused,
        renderer=unused,
        device=device,
        is_lora=False,
        source=shape,
        eos_ids=frozenset(),
    )


def make_step(num_groups: int, vocab_size: int) -> list[Group[TrainItem]]:
    """Rollouts of two turns with an observation between them."""
    rng = random.Random(0)

    def ids(count: int) -> list[int]:
        return [rng.randrange(vocab_size) for _ in range(count)]

    groups = []
    for group in range(num_groups):
        prompt = ids(rng.randint(*PROMPT))
        items = []
        for number in range(GROUP):
            trajectory = Trajectory(f"{group}/{number}", str(group))
            trajectory.append_prompt(prompt)
            length = rng.randint(*SUFFIX)
            for turn in range(2):
                part = ids(length // 3)
                logps = [-7.0] * len(part)
                trajectory.append_model(part, logps, version=0, reason=TurnStop.STOP_STRING)
                if not turn:
                    trajectory.append_env(ids(length // 3))
            items.append(TrainItem(trajectory, float(rng.random() < 0.5)))
        groups.append(Group(str(group), tuple(items)))
    return groups


def measure(shape: str, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds per update and tokens computed, both ways."""
    device = torch.device(args.device)
    policy = make_policy(shape, device)
    groups = make_step(args.groups, policy.vocab_size)
    learners = {}
    for way in ("padded", "packed"):
        optim = OptimConfig(micro_batch_tokens=args.micro_batch_tokens, lr=0.0)
        learners[way] = Learner(policy, make_grpo(), AlgorithmConfig(beta=0.0), optim, max_steps=1)
        if way == "padded":
            learners[way].packing_fault = "measured without"
    seconds = dict.fromkeys(learners, float("inf"))
    for _ in range(args.rounds):
        for way, learner in learners.items():
            started = time.perf_counter()
            learner.train_step(groups)
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds[way] = min(seconds[way], time.perf_counter() - started)
    grpo = learners["packed"]
    step = pack_step(groups, make_grpo(), grpo.loss_settings)
    tokens = {
        way: sum(
            batch.layout.ids_BT.numel()
            for batch in micro_batches(
                step.groups, args.micro_batch_tokens, device, is_packed=way == "packed"
            )
        )
        for way in learners
    }
    row = {"shape": shape, "rollouts": len(step.rows)}
    for way in learners:
        row |= {f"{way}_s": seconds[way], f"{way}_tokens": tokens[way]}
    return row | {"ratio": seconds["padded"] / seconds["packed"]}


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
