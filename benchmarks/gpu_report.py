"""One GPU in figures: its limits, how near the parts of a run come to them, TRL on the same work.

    python benchmarks/gpu_report.py [PART …] [--json FILE]
    python benchmarks/gpu_report.py --json FILE --compare OTHER

Qwen3-4B's architecture with random weights in bf16, LoRA of rank 16, no download. `share` is that
of what memory bandwidth (decode) and arithmetic (prefill, train) allow, both measured first; in
`memory` it is that of a run's plan. `main`: a run of `regulations` with the embedded model. `step`:
32 prompts of 512 tokens, groups of 8, four turns of 128 tokens, three observations of 256; TRL does
it with Transformers' `generate`, which prefills again every turn, and with vLLM, if they are there.

FILE is written after every figure; what is whole there is measured again only if its part is named.
What cannot run is named with the reason. Nothing starts after `--limit` seconds or runs 40 s
longer. `--shape micro --device cpu` tries the script.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from measuring import (
    STANDARD_OUTPUT,
    finish,
    make_parser,
    peak_bytes,
    print_table,
    restart_peak,
    set_threads,
    write_json,
)
from transformers import AutoConfig, Qwen3ForCausalLM
from workload import (
    OurSide,
    Workload,
    fastest,
    make_prompts,
    make_random_policy,
    make_trajectories,
    num_weights,
)

from searchrl.algorithms.builtin import make_grpo
from searchrl.config import build_config, load_preset, parse_sets
from searchrl.engine.memory.footprint import SHAPES
from searchrl.engine.memory.forecast import foresee_memory
from searchrl.engine.memory.machine import available
from searchrl.engine.model.loading import TINY_PATH, ResolvedModel
from searchrl.engine.model.policy import Policy

CONFIGS = {
    "qwen3-4b": SHAPES / "Qwen--Qwen3-4B.json",
    "qwen3-0.6b": SHAPES / "Qwen--Qwen3-0.6B.json",
    "micro": TINY_PATH / "config.json",
}
PARTS: dict[str, list[tuple[Any, ...]]] = {
    "limits": [("copy",), ("product",)],
    "decode": [(1, 1024, 64), (16, 1024, 64), (64, 1024, 64), (256, 1024, 64)],
    "prefill": [(1, 1024), (64, 1024), (16, 4096)],
    "train": [(n, long, way) for n, long in ((32, 1024), (8, 4096)) for way in ("again", "kept")],
    "memory": [(24, 3072, 12_288, "again"), (64, 2048, 16_384, "again"), (16, 1024, 4096, "kept")],
    "main": [("job",)],
    "step": [("ours",), ("trl",), ("trl+vllm",)],
}
"""Figures of each part by their sizes: rollouts, tokens of each; `again`: with checkpointing."""
MICRO: dict[str, list[tuple[Any, ...]]] = {
    "decode": [(1, 32, 32), (4, 32, 32)],
    "prefill": [(4, 32)],
    "train": [(4, 32, "again"), (4, 32, "kept")],
    "memory": [(4, 64, 128, "again")],
}
MAIN = "train --env regulations --reward format+em --model tiny"
MAIN_MICRO = (
    " --max-steps 1 --group-size 2 --set rollout.prompts_per_step=2 --set eval.num_tasks=4"
    " --set eval.num_tasks_during=4 --set eval.forced=false"
)
GIB = 1 << 30
KEYS = ("value", "unit", "seconds", "share", "peak_gib")


class GpuReport:
    """The model, the clock and what has been measured so far."""

    def __init__(self, args: argparse.Namespace, parts: dict[str, Any]) -> None:
        self.args, self.parts = args, parts
        self.started = time.perf_counter()
        self.device = torch.device(args.device)
        self.is_cuda, self.is_micro = self.device.type == "cuda", args.shape == "micro"
        self.config = AutoConfig.from_pretrained(CONFIGS[args.shape])
        self.dtype = torch.bfloat16 if self.is_cuda else torch.float32
        with torch.device("meta"):
            self.num_weights = num_weights(Qwen3ForCausalLM(self.config))
        self.bytes_per_token = 2 * self.config.num_hidden_layers * self.dtype.itemsize
        self.bytes_per_token *= self.config.num_key_value_heads * self.config.head_dim
        self.weight_bytes = self.num_weights * self.dtype.itemsize
        self.part: dict[str, Any] = {}
        self.figure = ""

    @cached_property
    def policy(self) -> Policy:
        """Made when a figure first needs it."""
        return make_random_policy(
            self.config, self.args.device, self.dtype, lora=True, checkpointing=True
        )

    # How a part is measured

    def measure(self, name: str) -> None:
        """Measure the figures of a part; what cannot run does not end the others."""
        self.part = self.parts[name] = {"figures": {}, "skipped": {}, "is_whole": False}
        works = (PARTS | MICRO if self.is_micro else PARTS)[name]
        for sizes in works:
            self.figure = " ".join(map(str, (name, *sizes)))
            if time.perf_counter() - self.started >= self.args.limit:
                self.skip(f"no time left within {self.args.limit} s")
                break
            restart_peak()
            if self.is_cuda:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            try:
                getattr(self, name)(*sizes)
            except TimeoutError as error:
                self.skip(str(error))
                break
            except Exception as error:  # whatever one met with, the figures of the others stand
                self.skip(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
            self.part["is_whole"] = sizes == works[-1]
            if self.args.json not in (None, STANDARD_OUTPUT):
                write_json(self.args, {"parts": self.parts})
            print(f"{time.perf_counter() - self.started:6.0f} s  {self.figure}", flush=True)

    def skip(self, reason: str) -> None:
        """Note what was not measured, and why."""
        self.part["skipped"][self.figure] = reason
        print(f"skipped {self.figure}: {reason}", flush=True)

    def add(self, value: float, unit: str, of: str = "", **more: float) -> None:
        """Add a value of this figure, or `of` a part of it."""
        self.part["figures"][self.figure + of] = {"value": value, "unit": unit, **more}

    def add_tokens(self, count: int, seconds: float, least: float) -> None:
        """Add tokens per second; `least`: the seconds at the limits."""
        share, peak = least / seconds, self.peak()
        self.add(count / seconds, "tokens/s", seconds=seconds, share=share, peak_gib=peak)

    def peak(self) -> float:
        """Most GiB held since the figure was begun: of the GPU, or of this process."""
        return (torch.cuda.max_memory_allocated() if self.is_cuda else peak_bytes()) / GIB

    def limit(self, name: str) -> float:
        """Bytes (`copy`) or FLOP (`product`) per second that this device was measured to do."""
        return float(self.parts["limits"]["figures"][f"limits {name}"]["value"]) * 1e12

    def side(self, work: Workload, num_slots: int, micro_batch_tokens: int = 8192) -> OurSide:
        """Our side of some work."""
        return OurSide(
            self.policy,
            work,
            make_prompts(self.policy.tokenizer, work, self.args.seed),
            num_slots=num_slots,
            micro_batch_tokens=micro_batch_tokens,
            seed=self.args.seed,
        )

    def set_way(self, way: str) -> None:
        """Compute layers `again` in the backward pass, or have what they made `kept`."""
        base = self.policy.base_model
        if way == "again":
            base.gradient_checkpointing_enable({"use_reentrant": False})
        else:
            base.gradient_checkpointing_disable()

    # The parts

    def limits(self, name: str) -> None:
        """Bytes per second of a copy (read and write), or FLOP per second of a product."""
        if name == "copy":
            size = 1 << (30 if self.is_cuda else 22)
            source = torch.empty(size, dtype=torch.uint8, device=self.device)
            target = torch.empty_like(source)
            self.add(2e-12 * size / fastest(self.device, lambda: target.copy_(source), 5), "TB/s")
        else:
            size = 8192 if self.is_cuda else 256
            a = torch.randn(size, size, dtype=self.dtype, device=self.device)
            self.add(2e-12 * size**3 / fastest(self.device, lambda: a @ a, 5), "TFLOP/s")

    def decode(self, batch: int, context: int, tokens: int) -> None:
        """Sampling at a context: weights and cache are read once per token of the batch."""
        side = self.side(Workload(batch, 1, context, tokens), batch)
        whole = fastest(self.device, side.sample, 2)
        # With one token, a sampling is the prefill.
        side.work = replace(side.work, turn_tokens=1)
        seconds = whole - fastest(self.device, side.sample)
        if seconds <= 0:
            raise RuntimeError("decoding is too short here to be told from its prefill")
        cache = batch * (context + tokens / 2) * self.bytes_per_token
        # Copies read and write: the same bandwidth, all of it for reading.
        least = (tokens - 1) * (self.weight_bytes + cache) / self.limit("copy")
        self.add_tokens(batch * (tokens - 1), seconds, least)

    def prefill(self, batch: int, length: int) -> None:
        """Prompts that are all different, with one token sampled behind each."""
        side = self.side(Workload(batch, 1, length, 1), batch)
        least = 2 * self.num_weights * batch * length / self.limit("product")
        self.add_tokens(batch * length, fastest(self.device, side.sample, 2), least)

    def train(self, rollouts: int, length: int, way: str) -> None:
        """Updates on rollouts whose prompts are all different and short."""
        self.set_way(way)
        work = Workload(rollouts // 2, 2, 16, length - 16)
        side = self.side(work, rollouts, 16_384 if way == "again" else 4096)
        trajectories = make_trajectories(work, self.config.vocab_size, self.args.seed)
        count = side.num_trained(trajectories)
        seconds = fastest(self.device, lambda: side.update(trajectories), 2)
        # Forward 2, backward through frozen matrices 2, forward again 2.
        flops = (6 if way == "again" else 4) * self.num_weights * count
        self.add_tokens(count, seconds, flops / self.limit("product"))

    def memory(self, slots: int, length: int, tokens: int, way: str) -> None:
        """The plan of `--dry-run`, and the peak of a sampling and an update of its sizes."""
        words = f"model.max_context={length} model.dtype={str(self.dtype).removeprefix('torch.')}"
        words += f" model.gradient_checkpointing={way == 'again'} rollout.max_total_tokens={length}"
        words += f" rollout.batch_size={slots} eval.batch_size={slots} rollout.group_size=2"
        words += f" rollout.prompts_per_step={slots // 2} optim.micro_batch_tokens={tokens}"
        config = build_config(load_preset("qwen3_4b_lora"), parse_sets(words.split()))
        with tempfile.TemporaryDirectory() as folder:
            self.config.save_pretrained(folder)
            model = ResolvedModel(folder, None, is_tiny=False)
            plan = foresee_memory(config, model, self.device, make_grpo())
        assert not isinstance(plan, str), plan
        self.set_way(way)
        side = self.side(Workload(slots, 1, length - 32, 32), slots, tokens)
        side.sample()
        if self.is_cuda:  # as `searchrl train` does between the two
            torch.cuda.empty_cache()
        work = Workload(slots // 2, 2, 16, length - 16)
        side.update(make_trajectories(work, self.config.vocab_size, self.args.seed))
        predicted, measured = plan.total / GIB, self.peak()
        self.add(predicted, "GiB", of=" plan")
        self.add(measured, "GiB", share=measured / predicted, of=" peak")

    def main(self, name: str) -> None:
        """The main job in a process of its own: seconds in all, exact match before and after."""
        with tempfile.TemporaryDirectory() as folder:
            words = f"{MAIN}{MAIN_MICRO if self.is_micro else ''} --device {self.args.device}"
            command = [sys.executable, "-m", "searchrl", *words.split(), "--run-dir", folder]
            began = time.perf_counter()
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode:
                raise RuntimeError(ran.stderr[-200:] or ran.stdout[-200:])
            self.add(time.perf_counter() - began, "s")
            for line in (Path(folder) / "metrics.jsonl").read_text("utf-8").splitlines():
                row = json.loads(line)
                if row["phase"] in ("before", "after"):
                    em = row["metrics"]["em"]["value"]
                    self.add(em, "exact match", of=f" {row['phase']}")

    def step(self, name: str) -> None:
        """The reference step, the first one of each side: there is no time for two."""
        scale = 32 if self.is_micro else 1
        work = Workload(8, 2, 16) if self.is_micro else Workload(32, 8, 512)
        work = replace(work, turn_tokens=128 // scale, num_turns=4, observation_tokens=256 // scale)
        if name == "ours":
            self.set_way("again")
            room = 0.6 * (available(self.device) or 0) / (work.max_length * self.bytes_per_token)
            side = self.side(work, max(1, min(work.num_rollouts, int(room))), 16_384)
            seconds = fastest(self.device, side.step)
            self.add(side.sample_s, "s", of=", sampling")
            self.add(side.update_s, "s", of=", update")
        else:
            self.__dict__.pop("policy", None)  # there may not be room for two
            restart_peak()
            seconds = self.time_trl(work, name)
            if ours := self.part["figures"].get("step ours"):
                self.add(seconds / ours["seconds"], "times as long as ours", ", ratio")
        self.add_tokens(work.num_model_tokens, seconds, self.least(work))

    def time_trl(self, work: Workload, name: str) -> float:
        """Seconds of a step of TRL."""
        from trl_side import ReprefillRollout, TrlSide, vllm_options

        if name == "trl+vllm" and find_spec("vllm") is None:
            raise RuntimeError("vLLM is not installed")
        policy = make_random_policy(self.config, self.args.device, self.dtype, lora=True)
        prompts = make_prompts(policy.tokenizer, work, self.args.seed)
        options: dict[str, Any] = {} if self.is_micro else {"gradient_checkpointing": True}
        with tempfile.TemporaryDirectory() as folder:
            if name == "trl+vllm":
                options |= vllm_options(policy, work, folder)
            rollout = ReprefillRollout(work, self.args.seed)
            side = TrlSide(
                policy.model, policy.tokenizer, work, prompts, rollout=rollout, **options
            )
            seconds = fastest(self.device, side.step)
        side.stop()
        return seconds

    def least(self, work: Workload) -> float:
        """Seconds that the reference step takes at the limits, on a slot cache without padding."""
        decode, length = 0.0, work.prompt_tokens
        prefill = work.num_prompts * work.prompt_tokens
        for turn in range(work.num_turns):
            cache = work.num_rollouts * (length + work.turn_tokens / 2) * self.bytes_per_token
            decode += work.turn_tokens * (self.weight_bytes + cache) / self.limit("copy")
            length += work.turn_tokens
            if turn + 1 < work.num_turns:
                prefill += work.num_rollouts * work.observation_tokens
                length += work.observation_tokens
        suffixes = work.num_rollouts * (work.max_length - work.prompt_tokens)
        trained = suffixes + work.num_prompts * work.prompt_tokens
        flops = self.num_weights * (2 * prefill + 4 * trained)
        return decode + flops / self.limit("product")


def figures(parts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All figures of a report by name."""
    return {name: one for part in parts.values() for name, one in part["figures"].items()}


def compare(here: dict[str, Any], there: dict[str, Any], name: str) -> None:
    """Print two reports side by side."""
    ours, theirs = figures(here["parts"]), figures(there["parts"])
    rows = []
    for figure, one in (theirs | ours).items():
        a, b = (side.get(figure, {}).get("value") for side in (ours, theirs))
        rows.append([figure, one["unit"], a, b, a / b if a is not None and b else None])
    print_table(["figure", "unit", "here", name, "ratio"], rows)


def read_parts(args: argparse.Namespace) -> dict[str, Any]:
    """The parts that the file holds already, if it is of this shape and card."""
    if args.json in (None, STANDARD_OUTPUT) or not args.json.exists():
        return {}
    report: dict[str, Any] = json.loads(args.json.read_text("utf-8"))
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    of = report["settings"]["shape"], report["settings"]["device"], report["machine"].get("gpu")
    if of != (args.shape, args.device, card):
        raise SystemExit(f"{args.json} is of {of}; name another file with --json")
    parts: dict[str, Any] = report["parts"]
    return parts


def give_up(*_: object) -> None:
    """End what hangs."""
    raise TimeoutError("not back in time")


def main() -> None:
    """Measure what is not measured yet, print, write."""
    parser = make_parser(__doc__ or "", threads=8, rounds=1)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--shape", choices=CONFIGS, default="qwen3-4b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=int, default=420, help="seconds after which nothing starts")
    parser.add_argument("--compare", type=Path, metavar="OTHER", help="two reports; nothing is run")
    args = parser.parse_args()
    if unknown := set(args.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if args.compare:
        if args.json in (None, STANDARD_OUTPUT):
            parser.error("--compare puts the report of --json FILE beside another one")
        here, there = (json.loads(path.read_text("utf-8")) for path in (args.json, args.compare))
        compare(here, there, args.compare.stem)
        return
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; to try the script: --shape micro --device cpu")
    set_threads(args.threads)
    report = GpuReport(args, read_parts(args))
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(args.limit + 40)
    for name in PARTS:
        is_whole = report.parts.get(name, {}).get("is_whole")
        # Shares are of the limits.
        if name in args.parts or (not is_whole and (name == "limits" or not args.parts)):
            report.measure(name)
    is_late = not signal.alarm(0)
    print(f"\n{args.shape}, {report.num_weights:,} weights\n")
    rows = [[name, *map(one.get, KEYS)] for name, one in figures(report.parts).items()]
    print_table(["figure", *KEYS], rows)
    finish(args, {"parts": report.parts})
    if is_late:
        sys.stdout.flush()
        os._exit(0)  # threads of what hung would keep this process alive


if __name__ == "__main__":
    main()
