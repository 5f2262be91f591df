"""What our step costs as one thing grows: group, prompt, turns, vocabulary, slots.

    python benchmarks/bench_scaling.py [--axis group] [--device cuda] [--json FILE]

Random weights; every row changes one thing of the base size. `prefill` counts the prompt and
observation tokens that sampling computed, `trained` the tokens the update computed; neither may
grow with what siblings share. `linear` is the growth of prefill since the axis's first row over
that of what there is to read (prompts once per group, every observation once): 1 is linear.
`memory` is the peak above what was held before the update, which does as many rollouts at a time
as `--micro-batch-tokens` has room for. `ratio`: how many times faster the base size is than with
our own plain generator and padded rollouts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from measuring import (
    MIB,
    finish,
    make_parser,
    peak_bytes,
    print_table,
    resident_bytes,
    restart_peak,
    set_threads,
    take_turns,
)

AXES = {
    "group": (2, 4, 8, 16),
    "prompt": (32, 64, 128, 256),
    "turns": (1, 2, 4, 8),
    "vocabulary": (32_768, 65_536, 151_936),
    "slots": (8, 16, 32, 64),
}
VOCABULARY = 3584
"""That of the embedded tokenizer, which makes the prompts."""


def main() -> None:
    """Measure, print, write."""
    parser = make_parser(__doc__ or "", rounds=1)
    parser.add_argument("--axis", choices=AXES, action="append", help="default: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32, help="of every turn")
    parser.add_argument("--micro-batch-tokens", type=int, default=4096)
    parser.add_argument("--values", type=int, default=0, help="only the first N of each axis")
    args = parser.parse_args()
    set_threads(args.threads)
    from workload import Workload

    base = Workload(args.prompts, 8, 64, args.tokens, 2, 32)
    result: dict[str, Any] = {"axes": {}}
    plain, ours = (_measure(args, base, is_plain=is_plain) for is_plain in (True, False))
    result["ratio"] = plain["seconds"] / ours["seconds"]
    for axis in args.axis or AXES:
        rows = []
        for value in AXES[axis][: args.values or None]:
            work, vocabulary, slots = base, VOCABULARY, base.num_rollouts
            if axis == "group":
                work = replace(base, group_size=value)
                slots = work.num_rollouts
            elif axis == "prompt":
                work = replace(base, prompt_tokens=value)
            elif axis == "turns":
                work = replace(base, num_turns=value)
            elif axis == "slots":
                # Skewed, in the same number of dialogues: do freed slots stand idle?
                work, slots = replace(base, num_prompts=4 * args.prompts, is_skewed=True), value
            else:
                # About memory: a few tokens show it, and drawing from so many takes its time.
                work, vocabulary = replace(base, num_turns=1, turn_tokens=8), value
            row = _measure(args, work, vocabulary=vocabulary, num_slots=slots)
            row |= {"value": value, "to_read": _tokens_to_read(work)}
            first = rows[0] if rows else row
            growth = row["prefill"] / first["prefill"]
            row["linear"] = growth / (row["to_read"] / first["to_read"])
            rows.append(row)
        result["axes"][axis] = rows
        print()
        keys = ("seconds", "cpu_s", "prefill", "linear", "trained", "slot_use", "memory MiB")
        print_table([axis, *keys], [[row["value"], *(row[key] for key in keys)] for row in rows])
    print(f"\nratio: ours is {result['ratio']:.2f} times faster than our plain generator, padded")
    finish(args, result)


def _tokens_to_read(work: Any) -> int:
    """Prompts once per group and every observation once."""
    observed = work.num_rollouts * (work.num_turns - 1) * work.observation_tokens
    return int(work.num_prompts * work.prompt_tokens + observed)


def _measure(
    args: Any,
    work: Any,
    *,
    vocabulary: int = VOCABULARY,
    num_slots: int = 0,
    is_plain: bool = False,
) -> dict[str, Any]:
    import torch
    from transformers import Qwen3Config
    from workload import OurSide, make_prompts, make_random_policy

    heads = max(1, args.hidden // 32)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=args.hidden,
        intermediate_size=args.hidden * 5 // 2,
        num_hidden_layers=args.layers,
        num_attention_heads=heads,
        num_key_value_heads=1 if heads % 2 else heads // 2,
        head_dim=32,
        tie_word_embeddings=True,
    )
    policy = make_random_policy(config, args.device)
    # As with LoRA, the embeddings stay as they are: their gradient would be all there is to see.
    policy.base_model.get_input_embeddings().requires_grad_(False)
    prompts = make_prompts(policy.tokenizer, work, args.seed)
    slots = num_slots or work.num_rollouts
    side = OurSide(
        policy,
        work,
        prompts,
        num_slots=slots,
        micro_batch_tokens=args.micro_batch_tokens,
        is_plain=is_plain,
        seed=args.seed,
    )
    times = take_turns({"ours": side.step}, args.rounds)["ours"]
    row: dict[str, Any] = {"seconds": times.wall_s, "cpu_s": times.cpu_s}
    if is_plain:
        return row
    stats = side.take_stats()
    num_steps = args.rounds + 1
    trajectories = side.sample()
    is_cuda = args.device == "cuda"
    if is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        restart_peak()
        before = resident_bytes()
    side.update(trajectories)
    peak = torch.cuda.max_memory_allocated() if is_cuda else peak_bytes()
    return row | {
        "prefill": (stats.num_prefilled + stats.num_appended) // num_steps,
        "trained": side.num_trained(trajectories),
        "slot_use": round(stats.slot_use, 3),
        "memory MiB": round(max(0, peak - before) / MIB, 1),
        "sample_s": side.sample_s,
        "update_s": side.update_s,
    }


if __name__ == "__main__":
    main()
