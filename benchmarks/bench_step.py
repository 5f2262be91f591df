"""Seconds per GRPO step, single turn: ours and TRL's GRPOTrainer with Hugging Face generate.

    python benchmarks/bench_step.py [--threads N] [--json FILE]

Same model (the embedded tiny one), prompts, groups, tokens, optimiser and threads, beta 0, fp32,
one process, the sides in turn. `ratio` is how many times faster ours is. `--memory` also runs each
side in a process of its own and compares peak memory.
"""

from __future__ import annotations

import argparse
from typing import Any

from measuring import (
    MIB,
    finish,
    make_parser,
    measure_alone,
    peak_bytes,
    print_table,
    resident_bytes,
    set_threads,
    take_turns,
)

SIDES = ("trl", "ours")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__ or "")
    parser.add_argument("--model", default="tiny", help="tiny, or a model folder")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=96, help="of every completion")
    parser.add_argument("--trl-micro-batch", type=int, default=8, help="rollouts per pass")
    parser.add_argument(
        "--micro-batch-tokens", type=int, help="ours, per pass; default: as many as TRL's"
    )
    parser.add_argument("--memory", action="store_true", help="compare peak memory as well")
    parser.add_argument("--only", choices=SIDES, help="run one side alone (for its memory)")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write."""
    args = parse()
    set_threads(args.threads)
    from trl_side import TrlSide, require_trl
    from workload import OurSide, Workload, load_bench_policy, make_prompts, num_weights

    work = Workload(args.prompts, args.group_size, args.prompt_tokens, args.tokens)
    per_pass = args.micro_batch_tokens or args.trl_micro_batch * work.max_length
    names = [args.only] if args.only else list(SIDES)
    if "trl" in names:
        require_trl()
    sides: dict[str, Any] = {}
    for name in names:
        policy = load_bench_policy(args.model)
        prompts = make_prompts(policy.tokenizer, work, args.seed)
        if name == "ours":
            sides[name] = OurSide(
                policy,
                work,
                prompts,
                num_slots=work.num_rollouts,
                micro_batch_tokens=per_pass,
                seed=args.seed,
            )
        else:
            sides[name] = TrlSide(
                policy.model,
                policy.tokenizer,
                work,
                prompts,
                micro_batch=args.trl_micro_batch,
                seed=args.seed,
            )
    before = resident_bytes()
    times = take_turns({name: side.step for name, side in sides.items()}, args.rounds)
    peak = peak_bytes()
    if "trl" in sides:
        sides["trl"].stop()
    if args.only:
        finish(args, {"peak_bytes": peak, "step_bytes": max(0, peak - before)})
        return
    ratio = times["trl"].wall_s / times["ours"].wall_s
    cpu_ratio = times["trl"].cpu_s / times["ours"].cpu_s
    model = sides["ours"].policy.model
    print(
        f"{args.model}, {num_weights(model):,} weights; {work.num_rollouts} completions of "
        f"{work.turn_tokens} tokens, {work.prompt_tokens} of prompt, groups of {work.group_size}\n"
    )
    result: dict[str, Any] = {
        "ratio": ratio,
        "cpu_ratio": cpu_ratio,
        "num_model_tokens": work.num_model_tokens,
        "ours_sample_s": sides["ours"].sample_s,
        "ours_update_s": sides["ours"].update_s,
        **{name: timing.facts() for name, timing in times.items()},
    }
    rows: list[list[Any]] = [
        [name, one.wall_s, one.cpu_s, round(work.num_model_tokens / one.wall_s)]
        for name, one in times.items()
    ]
    header = ["side", "s per step", "CPU s", "model tokens/s"]
    if args.memory:
        header += ["peak MiB", "of it by the steps, MiB"]
        argv = _argv(args)
        for row, name in zip(rows, SIDES, strict=True):
            alone = measure_alone(__file__, name, argv)
            row += [alone["peak_bytes"] // MIB, alone["step_bytes"] // MIB]
            result[f"{name}_peak_bytes"] = alone["peak_bytes"]
            result[f"{name}_step_bytes"] = alone["step_bytes"]
    print_table(header, rows)
    print(f"\nratio: ours is {ratio:.2f} times faster ({cpu_ratio:.2f} in CPU time)")
    finish(args, result)


def _argv(args: argparse.Namespace) -> list[str]:
    """The same sizes for a process of its own, with two timed steps."""
    same = ("model", "prompts", "group_size", "prompt_tokens", "tokens", "threads", "seed")
    same += ("trl_micro_batch", "micro_batch_tokens")
    given = {name: getattr(args, name) for name in same}
    argv = [f"--{k.replace('_', '-')}={v}" for k, v in given.items() if v is not None]
    return [*argv, "--rounds=2"]


if __name__ == "__main__":
    main()
