"""Seconds per GRPO step against turns: ours and a loop that prefills everything again every turn.

    python benchmarks/bench_turns.py [--turns 1 2 4 8] [--threads N] [--json FILE]

The loop is the rollout of Search-R1: each turn a stock `generate` over all live episodes, prompts
and all that followed included. It samples inside TRL's GRPOTrainer (`rollout_func`), which also
does its update, so that at one turn it is TRL; `loop / TRL` says how close, in the same run.
`ratio` has, per number of turns, how many times faster ours is. Tokens per turn stay the same, so
that what has to be computed grows linearly; `prefill` counts the prompt and observation tokens
that a side did compute. `CPU` and `rollout CPU` are ratios of CPU seconds, of the step and of
sampling alone (last step): steadier where the machine has other work.
"""

from __future__ import annotations

from typing import Any

from measuring import finish, make_parser, print_table, set_threads, take_turns


def main() -> None:
    """Measure, print, write."""
    parser = make_parser(__doc__ or "", rounds=3)
    parser.add_argument("--model", default="tiny", help="tiny, or a model folder")
    parser.add_argument("--turns", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32, help="of every turn")
    parser.add_argument("--observation-tokens", type=int, default=64, help="between two turns")
    parser.add_argument("--trl-micro-batch", type=int, default=8, help="rollouts per pass")
    parser.add_argument(
        "--micro-batch-tokens", type=int, help="ours, per pass; default: as many as TRL's"
    )
    args = parser.parse_args()
    set_threads(args.threads)
    from trl_side import ReprefillRollout, TrlSide, require_trl
    from workload import OurSide, Workload, load_bench_policy, make_prompts

    require_trl()
    rows: list[list[Any]] = []
    result: dict[str, Any] = {"ratio": {}, "cpu_ratio": {}, "turns": {}}
    for turns in args.turns:
        work = Workload(
            args.prompts,
            args.group_size,
            args.prompt_tokens,
            args.tokens,
            turns,
            args.observation_tokens,
        )
        policies = [load_bench_policy(args.model) for _ in range(3)]
        prompts = make_prompts(policies[0].tokenizer, work, args.seed)
        ours = OurSide(
            policies[0],
            work,
            prompts,
            num_slots=work.num_rollouts,
            micro_batch_tokens=args.micro_batch_tokens or args.trl_micro_batch * work.max_length,
            seed=args.seed,
        )
        rollout = ReprefillRollout(work, args.seed)
        given: dict[str, Any] = {"micro_batch": args.trl_micro_batch, "seed": args.seed}
        loop = TrlSide(
            policies[1].model, policies[1].tokenizer, work, prompts, rollout=rollout, **given
        )
        sides: dict[str, Any] = {"loop": loop, "ours": ours}
        if turns == 1:
            sides["trl"] = TrlSide(policies[2].model, policies[2].tokenizer, work, prompts, **given)
        times = take_turns({name: side.step for name, side in sides.items()}, args.rounds)
        for name in sides.keys() - {"ours"}:
            sides[name].stop()
        num_steps = args.rounds + 1
        stats = ours.take_stats()
        ours_prefill = (stats.num_prefilled + stats.num_appended) // num_steps
        loop_prefill = rollout.num_prefilled // num_steps
        ratio = times["loop"].wall_s / times["ours"].wall_s
        cpu_ratio = times["loop"].cpu_s / times["ours"].cpu_s
        result["ratio"][str(turns)], result["cpu_ratio"][str(turns)] = ratio, cpu_ratio
        result["turns"][str(turns)] = {
            "ours_prefill": ours_prefill,
            "loop_prefill": loop_prefill,
            "ours_rollout_cpu_s": ours.sample_cpu_s,
            "loop_rollout_cpu_s": rollout.cpu_s,
            **{name: one.facts() for name, one in times.items()},
        }
        if turns == 1:
            result["loop_over_trl"] = times["loop"].wall_s / times["trl"].wall_s
            result["loop_over_trl_cpu"] = times["loop"].cpu_s / times["trl"].cpu_s
        seconds = [times["loop"].wall_s, times["ours"].wall_s]
        rollouts = rollout.cpu_s / ours.sample_cpu_s
        rows.append([turns, *seconds, ratio, cpu_ratio, rollouts, loop_prefill, ours_prefill])
    print(
        f"{args.model}; {args.prompts * args.group_size} episodes, {args.prompt_tokens} tokens of "
        f"prompt, {args.tokens} per turn, {args.observation_tokens} between two turns\n"
    )
    header = [
        "turns",
        "loop s",
        "ours s",
        "ratio",
        "CPU",
        "rollout CPU",
        "loop prefill",
        "ours prefill",
    ]
    print_table(header, rows)
    if "loop_over_trl" in result:
        print(
            f"\nloop / TRL at one turn: {result['loop_over_trl']:.2f} "
            f"({result['loop_over_trl_cpu']:.2f} in CPU time)"
        )
    finish(args, result)


if __name__ == "__main__":
    main()
