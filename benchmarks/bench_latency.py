"""Sampling with tools that wait against the same tools at once: does waiting overlap?

    python benchmarks/bench_latency.py [--latency-ms 100] [--episodes 64] [--json FILE]

The same episodes are sampled by the slot engine in its deterministic mode, again and again: with no
latency, then with an environment, a retriever and a reward whose every call sleeps. `ratio` is, for
each of the three, (seconds with latency - waits x latency) / seconds without: 1 if nothing but one
latency per turn was added. `waits` are the calls that one episode has to make one after another:
the most searches of any episode, and one reward. If waiting did not overlap at all, the time would
be `one by one`. Every side must sample the same bytes (`is_equal`): what is decoded together must
not depend on when a tool answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import finish, make_parser, print_table, set_threads, take_turns

PLUGIN = Path(__file__).resolve().with_name("slow_tools.py")
KINDS = ("env", "retriever", "reward")


def main() -> None:
    """Measure, print, write."""
    parser = make_parser(__doc__ or "", rounds=3)
    parser.add_argument("--model", default="tiny", help="tiny, or a model folder")
    parser.add_argument("--latency-ms", type=float, default=100.0)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-turns", type=int, default=4, help="turns of an episode, at most")
    args = parser.parse_args()
    set_threads(args.threads)
    from searchrl.engine.rollout.rollout import Rollout

    latency_s = args.latency_ms / 1000
    tools, sample = make_sampler(args)
    rollouts: dict[str, list[Rollout]] = {}

    def side(slow: str) -> Callable[[], None]:
        def step() -> None:
            tools.LATENCY_S.update({kind: latency_s * (kind == slow) for kind in KINDS})
            tools.USAGE.clear()
            rollouts[slow] = sample()

        return step

    times = take_turns({slow: side(slow) for slow in ("none", *KINDS)}, args.rounds)
    most = max(rollout.episode.num_searches for rollout in rollouts["none"])
    fewest = min(rollout.episode.num_searches for rollout in rollouts["none"])
    base = times["none"].wall_s
    result: dict[str, Any] = {"ratio": {}, "waits": {}, "is_equal": {}, "times": {}}
    rows: list[list[Any]] = [["none", base, None, None, None, None]]
    for kind in KINDS:
        waits = 1 if kind == "reward" else most
        ratio = (times[kind].wall_s - waits * latency_s) / base
        is_equal = list(map(facts_of, rollouts[kind])) == list(map(facts_of, rollouts["none"]))
        one_by_one = base + latency_s * sum(
            1 if kind == "reward" else rollout.episode.num_searches for rollout in rollouts[kind]
        )
        result["ratio"][kind], result["waits"][kind] = ratio, waits
        result["is_equal"][kind] = is_equal
        rows.append([kind, times[kind].wall_s, waits, ratio, one_by_one, str(is_equal)])
    result["fewest_searches"], result["most_searches"] = fewest, most
    result["times"] = {name: one.facts() for name, one in times.items()}
    print(
        f"{args.model}; {args.episodes} episodes of {fewest} to {most} searches; every call of the "
        f"slow tool takes {args.latency_ms:g} ms\n"
    )
    print_table(["slow", "s", "waits", "ratio", "one by one", "same bytes"], rows)
    finish(args, result)


def make_sampler(args: Any) -> tuple[Any, Callable[[], list[Any]]]:
    """The module with the tools, and what samples all episodes once: the same ones every time."""
    from searchrl.engine.rollout.dialogue import RolloutRequest
    from searchrl.engine.rollout.drivers import make_driver
    from searchrl.engine.rollout.worlds import make_worlds
    from searchrl.engine.sampling.generator import mix_key
    from searchrl.plugins import load_plugins
    from searchrl.programs.setup.planning import plan_run

    plan = plan_run(
        {
            "env": {"name": "slow", "max_turns": args.max_turns},
            "retriever": "slow",
            "reward": "slow_reward",
            "model": {"name": args.model},
            "engine": {"deterministic": True},
            "rollout": {"batch_size": args.episodes},
            "seed": args.seed,
        }
    )
    registry = load_plugins([str(PLUGIN)], strict=True)
    (world,) = make_worlds(plan.config, registry)
    policy = plan.load_policy(trainable=False)
    set_threads(args.threads)  # the plan of a model may have changed it
    driver = make_driver(policy, plan.config, registry, plan.config.rollout)
    size = args.group_size
    requests = [
        RolloutRequest(
            f"g{i}", world, "train", i, tuple(mix_key(args.seed, i, k) for k in range(size))
        )
        for i in range(max(1, args.episodes // size))
    ]

    def sample() -> list[Any]:
        return [rollout for group in driver.run(requests) for rollout in group.rollouts]

    return sys.modules[registry.get("env", "slow").load().__module__], sample


def facts_of(rollout: Any) -> tuple[Any, ...]:
    """Everything that was sampled and scored, to the last bit."""
    trajectory = rollout.trajectory
    return trajectory.ids, trajectory.sampler_logps, rollout.episode.turns, rollout.reward


if __name__ == "__main__":
    main()
