"""A model of scale: what a training step costs on 8, 64 and 512 GPUs, and what bounds it.

    python benchmarks/scale_model.py [--measure] [--json FILE]

GPU stages are FLOPs or bytes over the datasheet's peaks, times efficiencies: two are fitted on two
published figures, that of decoding is set, and all other published figures only test them. CPU
stages are measured by `--measure` (one thread, no model); without it, `MEASURED` is used.
The step is W of `gpu_report.py` for every 8 GPUs, with LoRA; `docs/explanation/scale.md` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from measuring import finish, make_parser, print_table, set_threads, take_turns

PROMPTS, GROUP, PROMPT, TURNS, TURN, OBSERVATION = 4, 8, 512, 4, 128, 256
"""W; prompts per GPU."""
LENGTH = PROMPT + TURNS * TURN + (TURNS - 1) * OBSERVATION
CONTEXT = PROMPT + (TURNS - 1) * (TURN + OBSERVATION) / 2 + TURN / 2
"""Mean tokens before a sampled one."""
ROLLOUTS, TOKENS = PROMPTS * GROUP, PROMPTS * (PROMPT + GROUP * (LENGTH - PROMPT))
"""Per GPU; tokens are those that the update computes: a prompt once per group."""
GPUS, CORES, MICRO_BATCH, RANK = (8, 64, 512), 16, 16_384, 16
"""Cores for every 8 GPUs; tokens; rank of LoRA."""
NVLINK, NETWORK = 450e9, 50e9
"""Bytes per second of one GPU, within 8 and beyond."""
MEASURED = {"ledger_bytes": 17.6, "unpickle_us": 0.20, "pack_us": 0.29, "env_cpu_s": 0.0040}
"""Per token of a rollout; the last per rollout (docs/log.md, 2026-11-27)."""
QUERY_S, INDEX_MIB, DISK_MIB, BUILD_S, SEARCH_MIB = 6.2e-3, 618, 1_429, 214, 685
"""`bm25s` of a million passages (docs/how-to/retrieval.md): one core, batches of 64 queries."""
PASSAGES, FRONT_S = 21_015_324, 2.4e-3
"""Of Wikipedia; CPU of a front of 22 shards per query, in batches of 64 (`bench_front.py`)."""
SAMPLING = ("decode", "prefill", "environments", "retrieval")
LEARNING = ("train", "gather", "ledger")


class Gpu(NamedTuple):
    """FLOP/s in bf16 and bytes/s, by the datasheet."""

    flops: float
    bandwidth: float


H100, H200, B200 = Gpu(989e12, 3.35e12), Gpu(989e12, 4.8e12), Gpu(2250e12, 8e12)
KV_ROOM = 72e9
"""Of an H100: bytes for weights, keys and values."""


@dataclass(frozen=True, slots=True)
class Model:
    """A shape; heads have 128 numbers.

    `lora`: inputs and outputs of a layer's adapted matrices. `copy`: H100s that share a copy.
    """

    params: float
    active: float
    layers: int
    heads: int
    kv_heads: int = 8
    lora: int = 0
    copy: int = 1
    experts: int = 0
    chosen: int = 0

    def attention_flops(self, length: int) -> float:
        """Of a trained token (forward, recomputed, backward), the mean of a causal sequence."""
        return 8 * self.layers * self.heads * 128 * length

    @property
    def kv_bytes(self) -> int:
        """Keys and values of a token."""
        return 4 * self.layers * self.kv_heads * 128

    def read_bytes(self, batch: float) -> float:
        """Weights that a decoding step reads, if a router chooses evenly."""
        share = self.chosen / self.experts if self.experts else 0.0
        routed = (self.params - self.active) / (1 - share)
        return 2 * (self.params - routed * math.pow(1 - share, batch))


QWEN_4B = Model(4.022e9, 4.022e9, 36, 32, lora=57_344)
MOE_30B = Model(30.5e9, 3.3e9, 48, 32, kv_heads=4, experts=128, chosen=8)
MOE_106B = Model(106e9, 12e9, 46, 96, lora=59_520, copy=8, experts=128, chosen=8)
QWEN_32B = Model(32.8e9, 32.8e9, 64, 64, lora=131_072, copy=2)
MODELS = {"4B": QWEN_4B, "32B": QWEN_32B, "106B-A12B": MOE_106B}
TRAINING = (
    ("4B, 16k, 1 H100 (fitted)", QWEN_4B, H100, 1, 16_384, 6, 6_230.0),
    ("4B, 65k, 1 H100 (fitted)", QWEN_4B, H100, 1, 65_536, 6, 4_160.0),
    ("4B, 16k, 8 H100", QWEN_4B, H100, 8, 16_384, 6, 48_720.0),
    ("4B, 65k, 8 H100", QWEN_4B, H100, 8, 65_536, 6, 32_800.0),
    ("4B, 16k, 8 H200", QWEN_4B, H200, 8, 16_384, 6, 52_380.0),
    ("4B full, 16k, 8 H100", QWEN_4B, H100, 8, 16_384, 8, 26_030.0),
    ("4B full, 65k, 8 H100", QWEN_4B, H100, 8, 65_536, 8, 28_970.0),
    ("30B-A3B, 16k, 8 H100", MOE_30B, H100, 8, 16_384, 6, 33_100.0),
    ("30B-A3B, 16k, 8 H200", MOE_30B, H200, 8, 16_384, 6, 36_770.0),
    ("106B-A12B, 16k, 8 H200", MOE_106B, H200, 8, 16_384, 6, 16_690.0),
    ("106B-A12B, 65k, 8 H200", MOE_106B, H200, 8, 65_536, 6, 9_760.0),
)
"""prime-rl, benchmarks/results/BENCHMARKS.md, 2026-02-07: tokens/s of the machine. The number after
the length is FLOPs per token and weight: with LoRA 6 (forward, again, backward), full 8."""
DECODING = (
    ("30B-A3B, batch 8, vLLM", MOE_30B, 8, 64, 1_449.5),
    ("30B-A3B, batch 32, vLLM", MOE_30B, 32, 64, 4_721.3),
    ("30B-A3B, batch 48, vLLM", MOE_30B, 48, 64, 6_794.1),
    ("30B-A3B, batch 8, flex", MOE_30B, 8, 64, 905.0),
    ("30B-A3B, batch 32, flex", MOE_30B, 32, 64, 2_864.0),
    ("30B-A3B, batch 48, flex", MOE_30B, 48, 64, 3_911.1),
    ("4B with LoRA, batch 32, vLLM", QWEN_4B, 32, 407, 7_224.0),
)
"""unsloth, pull requests 5123 (2026-04-23) and, the last row, 5108 (2026-04-19): one B200; the
fourth number is the mean context, for 5123 a guess."""
DECODE_SHARE = 0.45


def fit() -> tuple[float, float]:
    """Of the peak: what matrix products and attention reach, by the first two of `TRAINING`."""
    (_, model, gpu, _, short, factor, quick), (_, _, _, _, long, _, slow) = TRAINING[:2]
    near, far = model.attention_flops(short), model.attention_flops(long)
    attention = (far - near) / gpu.flops / (1 / slow - 1 / quick)
    matmul = factor * model.active / gpu.flops / (1 / quick - near / gpu.flops / attention)
    return matmul, attention


MATMUL, ATTENTION = fit()


def train_rate(model: Model, gpu: Gpu, gpus: int, length: int, factor: int = 6) -> float:
    """Trained tokens per second."""
    work = factor * model.active / MATMUL
    return gpus * gpu.flops / (work + model.attention_flops(length) / ATTENTION)


def decode_rate(model: Model, gpu: Gpu, gpus: int, batch: float, context: float) -> float:
    """Sampled tokens per second of `gpus` that share a copy and a batch."""
    read = model.read_bytes(batch) + batch * context * model.kv_bytes
    return gpus * batch * gpu.bandwidth * DECODE_SHARE / read


def moved(model: Model, gpus: int, trainers: int, costs: Mapping[str, float]) -> dict[str, float]:
    """Bytes of a step: an adapter, all weights; what a process and a GPU of the trainer receive."""
    passes = 2 * math.ceil(TOKENS * gpus / trainers / MICRO_BATCH)
    return {
        "adapter": 4.0 * RANK * model.lora * model.layers,
        "weights": 2 * model.params,
        "ledger": ROLLOUTS * gpus * LENGTH * costs["ledger_bytes"],
        "gather": passes * 2 * model.params * (1 - 1 / trainers),
    }


def stages(
    model: Model, gpus: int, samplers: int, trainers: int, costs: Mapping[str, float]
) -> dict[str, float]:
    """Seconds of each stage; `samplers` and `trainers` are GPUs, the same ones or others."""
    rollouts, tokens = ROLLOUTS * gpus, TOKENS * gpus
    sent = moved(model, gpus, trainers, costs)
    link = NVLINK if gpus <= 8 else NETWORK
    copy, sampled = model.copy, rollouts * TURNS * TURN
    room = (KV_ROOM * copy - 2 * model.params) / (LENGTH * model.kv_bytes)
    batch = min(rollouts * copy / samplers, room)
    forward = 2 * model.active / MATMUL
    forward += model.attention_flops(LENGTH) / 4 / ATTENTION
    ledger_us = costs["unpickle_us"] + costs["pack_us"]  # every process reads and packs all
    cores = CORES * gpus / 8
    return {
        "decode": sampled / (samplers / copy * decode_rate(model, H100, copy, batch, CONTEXT)),
        "prefill": (tokens - sampled) * forward / (samplers * H100.flops),
        "environments": rollouts * costs["env_cpu_s"] / cores,
        "retrieval": rollouts * (TURNS - 1) * QUERY_S * PASSAGES / 1e6 / cores,
        "train": tokens / train_rate(model, H100, trainers, LENGTH),
        "gather": sent["gather"] / (NVLINK if trainers <= 8 else NETWORK),
        "ledger": rollouts * LENGTH * ledger_us / 1e6 + sent["ledger"] / link,
        "sync": sent["adapter"] / link,
        "or all weights": sent["weights"] / copy / link,
    }


def total(seconds: Mapping[str, float], names: Sequence[str]) -> tuple[float, str]:
    """Seconds of stages in turn, and the longest; the shorter of train and gather is hidden."""
    hidden = min(seconds["train"], seconds["gather"]) if "train" in names else 0.0
    return sum(seconds[n] for n in names) - hidden, max(names, key=lambda n: seconds[n])


def overlapped(model: Model, gpus: int, costs: Mapping[str, float]) -> tuple[float, str]:
    """Of a step sampled while the one before is trained: the best split; inf if none has room."""
    best, unit = (math.inf, "no split"), max(model.copy, gpus // 8)
    for samplers in range(unit, gpus, unit):
        if gpus - samplers >= model.copy:
            seconds = stages(model, gpus, samplers, gpus - samplers, costs)
            longest, name = max(total(seconds, SAMPLING), total(seconds, LEARNING))
            best = min(best, (longest + seconds["sync"], name))
    return best


def show(costs: Mapping[str, float]) -> None:
    """Print the tables of the page."""
    checks = [(name, r, train_rate(m, g, n, t, f)) for name, m, g, n, t, f, r in TRAINING]
    checks += [(name, r, decode_rate(m, B200, 1, n, t)) for name, m, n, t, r in DECODING]
    rows = [[name, rate, ours, f"{round(ours / rate, 2) - 1:+.0%}"] for name, rate, ours in checks]
    print(f"shares: matrix products {MATMUL:.2f}, attention {ATTENTION:.2f}\n")
    print_table(["published", "tokens/s", "model", "error"], rows)
    for rate in (5_744.0, 7_775.0):
        left = B200.bandwidth * DECODE_SHARE - rate * 1024 * QWEN_4B.kv_bytes
        print(f"{rate:,.0f} tokens/s: 4B, batch {rate * QWEN_4B.read_bytes(1) / left:.0f} at 1,024")
    print()
    steps, spent, sent = [], [], []
    for name, model in MODELS.items():
        for gpus in GPUS:
            tokens, seconds = TOKENS * gpus, stages(model, gpus, gpus, gpus, costs)
            turn_s, why = total(seconds, (*SAMPLING, *LEARNING, "sync"))
            lap_s, lap_why = overlapped(model, gpus, costs)
            rates = [tokens / seconds["train"], tokens / turn_s, why, tokens / lap_s or None]
            steps.append([name, gpus, *rates, lap_why])
            spent.append([name, gpus, *seconds.values()])
            bytes_ = moved(model, gpus, gpus, costs).values()
            sent.append([name, gpus, *(count / 1e9 for count in bytes_)])
    header = ["", "GPUs"]
    print_table([*header, "train", "step", "bound by", "overlapped", "then by"], steps)
    print()
    print_table([*header, *seconds], spent)
    print()
    print_table([*header, "adapter", "weights", "ledger", "gather"], sent)
    shards, rows = math.ceil(PASSAGES / 1e6), []
    for gpus in GPUS:
        seconds = stages(QWEN_4B, gpus, gpus, gpus, costs)
        rate = ROLLOUTS * gpus * (TURNS - 1) / (seconds["decode"] + seconds["prefill"])
        cores = math.ceil(rate * QUERY_S) * shards
        fronts = math.ceil(rate * FRONT_S)
        servers = math.ceil((cores + fronts) / CORES)
        gib = cores * SEARCH_MIB / 1024
        rows.append([gpus, rate, cores // shards, cores, servers, gib, fronts])
    parts = PASSAGES / 1e6 / 1024
    print(f"\n{shards} shards, {parts * INDEX_MIB:.1f} GiB, with texts {parts * DISK_MIB:.1f} GiB")
    print(f"built in {PASSAGES / 1e6 * BUILD_S / 60:.0f} CPU minutes\n")
    header = ["GPUs", "queries/s", "copies", "cores", "servers", "memory, GiB", "fronts"]
    print_table(header, rows)


def measure(rounds: int, seed: int) -> dict[str, float]:
    """What `MEASURED` holds: scripted episodes of `regulations`, and ledgers of W with them."""
    from workload import Workload, load_bench_policy, make_trajectories

    from searchrl.algorithms.builtin import make_grpo
    from searchrl.config import build_config
    from searchrl.core.group import Group
    from searchrl.core.reduction import LossSettings
    from searchrl.engine.learning.packing import pack_step
    from searchrl.engine.learning.sharing import pack_group, unpack_group
    from searchrl.engine.model.loading import TINY_PATH
    from searchrl.engine.rollout.dialogue import RolloutRequest
    from searchrl.engine.rollout.drivers import make_scripted_driver
    from searchrl.engine.rollout.worlds import make_worlds
    from searchrl.plugins import load_plugins

    config = build_config({"env": {"name": "regulations"}, "reward": "em", "seed": seed})
    world = make_worlds(config, load_plugins(strict=True))[0]
    policy = load_bench_policy(str(TINY_PATH), trainable=False)
    driver, script = make_scripted_driver(config, policy.renderer), world.script("expert")
    requests = [
        RolloutRequest(str(n), world, "train", n, tuple(range(GROUP)), script=script)
        for n in range(8)
    ]
    work = Workload(len(requests), GROUP, PROMPT, TURN, TURNS, OBSERVATION)
    drawn = iter(make_trajectories(work, 151_936, seed))
    ledger = [
        Group(group.id, tuple(replace(one, trajectory=next(drawn)) for one in group.rollouts))
        for group in driver.run(requests)
    ]
    sent, grpo = [pack_group(group) for group in ledger], make_grpo()
    whole = LossSettings(beta=1.0, reduction="token-mean")  # groups of one reward, too
    sides = {
        "env": lambda: driver.run(requests),
        "unpickle": lambda: [unpack_group(*pair) for pair in zip(sent, requests, strict=True)],
        "pack": lambda: pack_step(ledger, grpo, whole),
    }
    took = {name: timing.cpu_s for name, timing in take_turns(sides, rounds).items()}
    tokens = work.num_rollouts * LENGTH
    return {
        "ledger_bytes": sum(map(len, sent)) / tokens,
        "unpickle_us": took["unpickle"] / tokens * 1e6,
        "pack_us": took["pack"] / tokens * 1e6,
        "env_cpu_s": took["env"] / work.num_rollouts,
    }


def main() -> None:
    """Measure if asked to, print the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--measure", action="store_true", help="the CPU costs, on this machine")
    args = parser.parse_args()
    set_threads(args.threads)
    costs = measure(args.rounds, args.seed) if args.measure else MEASURED
    print(", ".join(f"{name} {value:.3g}" for name, value in costs.items()))
    show(costs)
    finish(args, {"costs": costs})


if __name__ == "__main__":
    main()
