"""One GPU against its limits: decode, prefill, train, and the reference step W.

    python benchmarks/bench_gpu.py [--json FILE]

Qwen3-4B's architecture with random weights in bf16, LoRA of rank 16, no download. Percentages are
of what memory bandwidth (decode) and bf16 arithmetic (prefill, train) allow; both are measured
first, on this machine. W: 32 prompts of 512 tokens, groups of 8, four turns of 128 tokens, three
observations of 256. TRL (if installed) does W by prefilling again every turn; it and Transformers'
continuous batching are skipped, with the reason, where they are missing or fail. `ratio`: how many
times faster ours does W. Nothing is started that would not end within `--limit` seconds by the
figures so far. `--shape micro --device cpu` tries the script.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from measuring import finish, make_parser, print_table, set_threads
from transformers import GenerationConfig, Qwen3Config
from workload import (
    OurSide,
    Workload,
    make_prompts,
    make_random_policy,
    make_trajectories,
    num_weights,
)

SHAPES = {
    "qwen3-4b": Qwen3Config(
        vocab_size=151_936,
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    ),
    "micro": Qwen3Config(
        vocab_size=2560,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
    ),
}


class Bench:
    """The model, the clock and what has been found so far."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.started = time.perf_counter()
        self.is_cuda = args.device == "cuda"
        self.is_micro = args.shape == "micro"
        self.config = SHAPES[args.shape]
        dtype = torch.bfloat16 if self.is_cuda else torch.float32
        checkpointing = not self.is_micro
        self.policy = make_random_policy(
            self.config, args.device, dtype, lora=True, checkpointing=checkpointing
        )
        self.num_weights = num_weights(self.policy.base_model)
        self.bytes_per_token = 2 * self.config.num_hidden_layers * dtype.itemsize
        self.bytes_per_token *= self.config.num_key_value_heads * self.config.head_dim
        self.weight_bytes = self.num_weights * dtype.itemsize
        self.rows: list[list[Any]] = []
        self.result: dict[str, Any] = {"figures": {}, "skipped": {}}
        self.is_hanging = False
        self.copy_bytes_s, self.flops_s = self._limits(dtype)

    def _limits(self, dtype: torch.dtype) -> tuple[float, float]:
        """Measured bytes per second of a copy (read and write) and bf16 FLOP per second."""
        size = 1 << (30 if self.is_cuda else 22)
        source = torch.empty(size, dtype=torch.uint8, device=self.args.device)
        target = torch.empty_like(source)
        bandwidth = 2 * size / self.seconds(lambda: target.copy_(source), repeat=5)
        side = 8192 if self.is_cuda else 256
        a = torch.randn(side, side, dtype=dtype, device=self.args.device)
        flops = 2 * side**3 / self.seconds(lambda: a @ a, repeat=5)
        self.result |= {"copy_bytes_s": bandwidth, "flops_s": flops}
        return bandwidth, flops

    def seconds(self, work: Callable[[], object], repeat: int = 1) -> float:
        """The fastest of some runs after one that is not timed; at least one."""
        if repeat > 1:
            work()
        best = float("inf")
        for _ in range(repeat):
            self.wait()
            began = time.perf_counter()
            work()
            self.wait()
            best = min(best, time.perf_counter() - began)
        return best

    def wait(self) -> None:
        """Until the device is done."""
        if self.is_cuda:
            torch.cuda.synchronize()

    def left(self) -> float:
        """Seconds until the limit."""
        return float(self.args.limit - (time.perf_counter() - self.started))

    def add(self, name: str, side: str, seconds: float, tokens: int, limit_s: float) -> None:
        """One figure: its time, tokens per second and share of the limit."""
        peak = torch.cuda.max_memory_allocated() / (1 << 30) if self.is_cuda else None
        share = limit_s / seconds
        self.rows.append([name, side, seconds, round(tokens / seconds), f"{share:.1%}", peak])
        self.result["figures"].setdefault(name, {})[side] = {
            "seconds": seconds,
            "tokens_per_s": tokens / seconds,
            "of_limit": share,
            "peak_gib": peak,
        }

    def attempt(self, name: str, work: Callable[[], None]) -> None:
        """Run one part; what cannot run is named with the reason instead of ending the others.

        A part that hangs is left behind once the limit and a minute are over.
        """
        if self.is_cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        if self.left() <= 0:
            self.skip(name, f"no time left within {self.args.limit} s")
            return

        def run() -> None:
            try:
                work()
            except Exception as error:  # whatever one met with, the figures of the others stand
                self.skip(name, f"{type(error).__name__}: {str(error).splitlines()[:1]}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(max(1.0, self.left()) + 40)
        if thread.is_alive():
            self.is_hanging = True
            self.skip(name, "not back in time")
        print(f"{time.perf_counter() - self.started:6.0f} s  {name}", flush=True)

    def skip(self, name: str, reason: str) -> None:
        """Note what was not measured, and why."""
        self.result["skipped"][name] = reason
        print(f"skipped {name}: {reason}", flush=True)

    # The parts

    def decode(self, batch: int, context: int, tokens: int) -> None:
        """Sampling at a context: weights and cache are read once per token of the batch."""
        side = self._side(Workload(batch, 1, context, tokens), batch)
        side.sample()
        side.take_stats()
        # A second sampling with one token less to decode than it has to prefill tells the prefill.
        whole = self.seconds(side.sample)
        side.work = replace(side.work, turn_tokens=1)
        start = self.seconds(side.sample)
        cache = batch * (context + tokens / 2) * self.bytes_per_token
        # Copies read and write: the same bandwidth, all of it for reading.
        limit = (tokens - 1) * (self.weight_bytes + cache) / self.copy_bytes_s
        name = f"decode {batch} @ {context}"
        self.add(name, "ours", max(1e-9, whole - start), batch * (tokens - 1), limit)
        flops = 2 * self.num_weights * batch * context
        self.add(
            f"prefill {batch} × {context}", "ours", start, batch * context, flops / self.flops_s
        )

    def batching(self, batch: int, context: int, tokens: int) -> None:
        """Transformers' own continuous batching on the same prompts, prefill included."""
        if not self.is_cuda:
            raise RuntimeError("it needs a GPU")
        model = self.policy.base_model
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(10, 2000, (batch, context), generator=generator).tolist()
        settings = GenerationConfig(
            max_new_tokens=tokens, do_sample=True, eos_token_id=-1, pad_token_id=0
        )
        seconds = self.seconds(
            lambda: model.generate_batch(ids, generation_config=settings, progress_bar=False)
        )
        cache = batch * (context + tokens / 2) * self.bytes_per_token
        limit = tokens * (self.weight_bytes + cache) / self.copy_bytes_s
        limit += 2 * self.num_weights * batch * context / self.flops_s
        self.add(f"decode {batch} @ {context}", "batching", seconds, batch * tokens, limit)

    def train(self, length: int, rollouts: int) -> None:
        """One update on rollouts whose prompts are all different and short."""
        work = Workload(rollouts // 2, 2, 16, length - 16)
        side = self._side(work, rollouts, micro_batch_tokens=4 * length)
        trajectories = make_trajectories(work, self.config.vocab_size, self.args.seed)
        count = side.num_trained(trajectories)
        seconds = self.seconds(lambda: side.update(trajectories), repeat=2)
        # Forward 2, backward through frozen matrices 2, and with checkpoints forward again 2.
        flops = (6 if self.policy.model.is_gradient_checkpointing else 4) * self.num_weights * count
        self.add(f"train {rollouts} × {length}", "ours", seconds, count, flops / self.flops_s)

    def step(self, work: Workload) -> None:
        """The reference step, ours."""
        side = self._side(work, work.num_rollouts, micro_batch_tokens=16_384)
        seconds = self.seconds(side.step)
        self.result["ours_sample_s"], self.result["ours_update_s"] = side.sample_s, side.update_s
        self.add("step W", "ours", seconds, work.num_model_tokens, self._limit(work))

    def step_trl(self, work: Workload) -> None:
        """The reference step, TRL: the first one is timed, there is no time for two."""
        from trl_side import ReprefillRollout, TrlSide

        policy = make_random_policy(
            self.config, self.args.device, self.policy.base_model.dtype, lora=True
        )
        prompts = make_prompts(policy.tokenizer, work, self.args.seed)
        options = {} if self.is_micro else {"gradient_checkpointing": True}
        side = TrlSide(
            policy.model,
            policy.tokenizer,
            work,
            prompts,
            rollout=ReprefillRollout(work, self.args.seed),
            **options,
        )
        seconds = self.seconds(side.step)
        side.stop()
        self.add("step W", "trl", seconds, work.num_model_tokens, self._limit(work))

    def _limit(self, work: Workload) -> float:
        """Seconds the reference step takes at the limits, on a slot cache without padding."""
        decode = prefill = 0.0
        length = work.prompt_tokens
        prefill += work.num_prompts * work.prompt_tokens
        for turn in range(work.num_turns):
            cache = work.num_rollouts * (length + work.turn_tokens / 2) * self.bytes_per_token
            decode += work.turn_tokens * (self.weight_bytes + cache) / self.copy_bytes_s
            length += work.turn_tokens
            if turn + 1 < work.num_turns:
                prefill += work.num_rollouts * work.observation_tokens
                length += work.observation_tokens
        suffixes = work.num_rollouts * (work.max_length - work.prompt_tokens)
        trained = suffixes + work.num_prompts * work.prompt_tokens
        flops = self.num_weights * (2 * prefill + 4 * trained)
        return decode + flops / self.flops_s

    def _side(self, work: Workload, num_slots: int, micro_batch_tokens: int = 8192) -> OurSide:
        prompts = make_prompts(self.policy.tokenizer, work, self.args.seed)
        return OurSide(
            self.policy,
            work,
            prompts,
            num_slots=num_slots,
            micro_batch_tokens=micro_batch_tokens,
            seed=self.args.seed,
        )


def main() -> None:
    """Measure, print, write."""
    parser = make_parser(__doc__ or "", threads=8, rounds=1)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-4b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=int, default=420, help="seconds after which nothing starts")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; to try the script: --shape micro --device cpu")
    set_threads(args.threads)
    bench = Bench(args)
    small = bench.is_micro
    scale = 32 if small else 1
    work = Workload(32 // (scale // 8 or 1), 8 // (4 if small else 1), 512 // scale)
    work = replace(work, turn_tokens=128 // scale, num_turns=4, observation_tokens=256 // scale)
    sizes = [(64 // scale * (2 if small else 1), 1024 // scale, 64 // (8 if small else 1))]
    sizes += [] if small else [(256, 1024, 64)]
    # The reference step comes first: it is what the others explain.
    bench.attempt("step W, ours", lambda: bench.step(work))
    for size in sizes:
        bench.attempt(f"decode {size}, ours", lambda size=size: bench.decode(*size))
    bench.attempt("train, ours", lambda: bench.train(2048 // scale, 32 // (8 if small else 1)))
    bench.attempt("step W, TRL", lambda: bench.step_trl(work))
    if not bench.is_hanging:
        bench.attempt("decode, continuous batching", lambda: bench.batching(*sizes[0]))
    print(
        f"\n{args.shape}, {bench.num_weights:,} weights; measured limits of this device: "
        f"{bench.copy_bytes_s / 1e12:.2f} TB/s, {bench.flops_s / 1e12:.0f} TFLOP/s\n"
    )
    header = ["figure", "side", "s", "tokens/s", "of the limit", "peak GiB"]
    print_table(header, bench.rows)
    both = bench.result["figures"].get("step W", {})
    bench.result["ratio"] = None
    if {"ours", "trl"} <= both.keys():
        bench.result["ratio"] = both["trl"]["seconds"] / both["ours"]["seconds"]
        print(f"\nratio: ours is {bench.result['ratio']:.2f} times faster at W")
    finish(args, bench.result)
    if bench.is_hanging:
        sys.stdout.flush()
        os._exit(0)  # its threads would keep this process alive


if __name__ == "__main__":
    main()
