"""Seconds per GRPO step of this checkout and of an earlier one, step by step in turn.

    git worktree add /tmp/before COMMIT
    python benchmarks/bench_before.py --before /tmp/before [--turns 1 4] [--rounds N]

Each checkout runs in a process of its own with its own `benchmarks/workload.py`: one step of one,
one step of the other, so that a change of the machine's speed meets both. `ratio` is before / now:
above 1, this checkout is faster.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent

WORKER = """
import sys
sys.path[:0] = ["benchmarks", "."]
import torch
from workload import OurSide, Workload, load_bench_policy, make_prompts
turns = int(sys.argv[1])
torch.set_num_threads(1)
work = Workload(8, 8, 64, 96) if turns == 1 else Workload(8, 8, 64, 32, turns, 64)
policy = load_bench_policy("tiny")
prompts = make_prompts(policy.tokenizer, work, 0)
size = 8 * work.max_length
side = OurSide(policy, work, prompts, num_slots=work.num_rollouts, micro_batch_tokens=size)
for _ in sys.stdin:
    side.step()
    print(side.sample_s, side.update_s, flush=True)
"""


class Checkout:
    """A process that takes a step when it is told to."""

    def __init__(self, folder: Path, turns: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(turns)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def step(self) -> tuple[float, float]:
        """Seconds of sampling and of the update."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the process of a checkout ended; its error stands above")
        sample_s, update_s = map(float, line.split())
        return sample_s, update_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="folder of the other checkout")
    parser.add_argument("--turns", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    for turns in args.turns:
        sides = [Checkout(args.before.resolve(), turns), Checkout(HERE, turns)]
        pairs = [[side.step() for side in sides] for _ in range(args.rounds + 1)][1:]
        for part, name in enumerate(("sampling", "update")):
            before, now = (statistics.median(pair[i][part] for pair in pairs) for i in (0, 1))
            ratio = statistics.median(pair[0][part] / pair[1][part] for pair in pairs)
            print(f"{turns} turns  {name:<9} {before:.2f} s -> {now:.2f} s  ratio {ratio:.3f}")
        whole = sorted(sum(pair[0]) / sum(pair[1]) for pair in pairs)
        print(
            f"{turns} turns  step      ratio {statistics.median(whole):.3f} "
            f"(pairs {whole[0]:.3f} to {whole[-1]:.3f})"
        )
        for side in sides:
            side.process.kill()


if __name__ == "__main__":
    main()
