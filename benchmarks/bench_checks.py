"""What the check of every batch costs: whole training steps with it and without, in turn.

    python benchmarks/bench_checks.py [--threads N] [--json FILE]

Both sides take one step of a session (the environment, its rollouts and the update of
`searchrl train`) again and again with a learning rate of 0, so that they sample the same tokens.
`overhead` is the median, over pairs, of how much longer the step with the check took; `share` is
the time inside the check itself as a part of its step, which other work on the machine disturbs
less. The check at the start of a run is timed once more, as `start_s`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from measuring import finish, make_parser, print_table, set_threads, take_turns

LIMIT = 0.02
"""Part of a step that checks may take."""


def parse() -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__ or "")
    parser.add_argument("--model", default="tiny", help="tiny, or a model folder")
    parser.add_argument("--env", default="regulations")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    return parser.parse_args()


class TimedCheck:
    """The check of a learner, with a clock around each of its calls."""

    def __init__(self, check: Any) -> None:
        self.check = check
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self.check, name)

        def timed(*args: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*args)
            finally:
                self.seconds += time.perf_counter() - started

        return timed


def main() -> None:
    """Measure, print, write."""
    args = parse()
    set_threads(args.threads)
    from searchrl.engine.learning.workers import ALONE
    from searchrl.plugins import load_plugins
    from searchrl.programs.setup.planning import plan_run
    from searchrl.programs.setup.session import Session

    rollout = {"prompts_per_step": args.prompts, "group_size": args.group_size}
    settings = {
        "env": args.env,
        "model": {"name": args.model},
        "rollout": rollout,
        # Dead groups are computed, too: as many tokens as there are.
        "algorithm": {"beta": 0.001},
        "optim": {"lr": 0.0},
        "seed": args.seed,
        "num_threads": args.threads,
    }
    session = Session(plan_run(settings), load_plugins(), ALONE, lambda text: None)
    check = TimedCheck(session.learner.check)
    sides = ("plain", "checked")
    walls: list[float] = []
    inside: list[float] = []

    def take(side: str) -> None:
        learner: Any = session.learner
        learner.check = check if side == "checked" else None
        check.seconds = 0.0
        started = time.perf_counter()
        session.update(session.sample(1), 1)
        if side == "checked":
            walls.append(time.perf_counter() - started)
            inside.append(check.seconds)

    start_s = session.examine(is_thorough=False).took_s
    times = take_turns({side: lambda side=side: take(side) for side in sides}, args.rounds)
    session.close()
    pairs = zip(times["checked"].walls, times["plain"].walls, strict=True)
    overhead = statistics.median(checked / plain - 1 for checked, plain in pairs)
    share = statistics.median(
        part / (wall - part) for part, wall in zip(inside[1:], walls[1:], strict=True)
    )
    print_table(
        ["side", "s per step", "CPU s"],
        [[name, one.wall_s, one.cpu_s] for name, one in times.items()],
    )
    print(
        f"\noverhead {overhead:.2%} (median of {args.rounds} pairs), inside the check {share:.2%}; "
        f"limit {LIMIT:.0%}. The checks at the start took {start_s:.2f} s"
    )
    result = {
        "overhead": overhead,
        "share": share,
        "limit": LIMIT,
        "is_within": share <= LIMIT,
        "start_s": start_s,
        **{name: timing.facts() for name, timing in times.items()},
    }
    finish(args, result)


if __name__ == "__main__":
    main()
