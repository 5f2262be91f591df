"""CPU time of a training step with its spans in a file, as a multiple of that without.

    python plugins/searchrl-otel/benchmarks/overhead.py [--pairs 8] [--seed 0]

The steps of `searchrl train --env regulations --reward format+em` with the tiny model. Two sessions
in one process take the same steps, one with spans, in pairs whose order alternates; that both
sample the same tokens is checked. The interval is over pairs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from opentelemetry import trace
from searchrl_otel.tracker import OtelTracker

from searchrl import estimate
from searchrl.engine.learning.workers import ALONE
from searchrl.plugins import load_plugins
from searchrl.programs.setup.planning import plan_run
from searchrl.programs.setup.session import Session
from searchrl.tracing import TRACER


def take_step(session: Any, step: int, tracer: trace.Tracer) -> tuple[list[Any], float]:
    """The sampled tokens, and the CPU seconds of all threads."""
    TRACER._real_tracer = tracer  # type: ignore[attr-defined]
    started = time.process_time()
    with TRACER.start_as_current_span(f"step {step}"):
        drawn = session.sample(step)
        session.update(drawn, step)
    return [one.trajectory.ids for one in drawn.rollouts], time.process_time() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    settings = {"env": "regulations", "reward": "format+em", "model": "tiny", "num_threads": 1}
    plan, registry = plan_run({**settings, "seed": args.seed}), load_plugins()
    sessions = [Session(plan, registry, ALONE, lambda text: None) for _ in range(2)]
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        tracker = OtelTracker(folder)
        tracers = (trace.NoOpTracer(), trace.get_tracer_provider().get_tracer("searchrl"))
        for step in range(1, args.pairs + 2):
            order = (0, 1) if step % 2 else (1, 0)
            made = {side: take_step(sessions[side], step, tracers[side]) for side in order}
            assert made[0][0] == made[1][0]
            print(f"step {step}: {made[0][1]:.2f} s, with spans {made[1][1]:.2f} s", flush=True)
            if step > 1:  # the first pair warms up
                ratios[str(step)] = made[1][1] / made[0][1]
        tracker.close()
    print(estimate({"ratio": ratios})["ratio"])


if __name__ == "__main__":
    main()
