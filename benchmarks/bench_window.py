"""A training step on rollouts of one context, and of several within a quarter of it.

    python benchmarks/bench_window.py [--lengths 2048 8192] [--json FILE]

A rollout has seven actions and six observations. One side reads all of it at once. The other reads
an observation at a time: behind each action it is asked for a summary, and the next segment begins
with the prompt, the summary and the observation, as the wrapper `context` has it. Both have the
architecture of the embedded model with random weights, slots for all rollouts, and micro-batches of
one context. Peak memory: what each side takes once its model is loaded, in a process of its own.
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
    restart_peak,
    set_threads,
    take_turns,
    write_json,
)
from transformers import AutoConfig
from workload import OurSide, Workload, make_prompts, make_random_policy, observe

from searchrl.core.trajectory import Trajectory
from searchrl.engine.model.loading import TINY_PATH
from searchrl.engine.sampling.generator import Sampling, mix_key
from searchrl.engine.sampling.slot_generator import SlotGenerator

TURN, REQUEST, ACTIONS, PROMPT = 24, 16, 7, 64
SIDES = ("full", "window")


class Windowed(OurSide):
    """Rollouts whose every observation is read in a segment of its own."""

    def sample(self) -> list[Trajectory]:
        """See the base."""
        generator, work, made = self.generator, self.work, list[Trajectory]()
        live = {}

        def open_(trajectory: Trajectory, ids: list[int], key: int) -> None:
            (handle,) = generator.open(ids, 1, [key])
            trajectory.append_prompt(ids)
            generator.submit(handle, (), (), TURN)
            live[handle] = trajectory

        for number, ids in enumerate(self.prompt_ids):
            for place in range(work.group_size):
                name = f"{self.num_steps}/{number}/{place}"
                made.append(Trajectory(name, str(number)))
                open_(made[-1], ids, mix_key(self.seed, self.num_steps, number, place))
        while live:
            for turn in generator.poll():
                trajectory = live[turn.handle]
                trajectory.append_model(
                    turn.ids, turn.logps, version=turn.version, reason=turn.reason
                )
                count = len(trajectory.turns)
                key = mix_key(count, *turn.ids)
                if count % 2 and count < 2 * ACTIONS - 1:  # an action: a summary is asked for
                    said = observe(self.policy.tokenizer, REQUEST, key)
                    trajectory.append_env(said)
                    generator.submit(turn.handle, said, (), TURN)
                    continue
                generator.close(turn.handle)
                del live[turn.handle]
                if count < 2 * ACTIONS - 1:
                    said = observe(self.policy.tokenizer, work.observation_tokens, key)
                    prompt = self.prompt_ids[int(trajectory.group_id)]
                    trajectory.begin_segment("summary")
                    open_(trajectory, [*prompt, *turn.ids, *said], key)
        return made


def make_side(args: argparse.Namespace, length: int, name: str) -> OurSide:
    """A side on rollouts of `length` tokens."""
    observation = (length - PROMPT - ACTIONS * TURN) // (ACTIONS - 1)
    work = Workload(1, 4, PROMPT, TURN, ACTIONS, observation)
    config: Any = AutoConfig.from_pretrained(TINY_PATH)
    config.max_position_embeddings = 16_384
    policy = make_random_policy(config)
    prompts = make_prompts(policy.tokenizer, work, args.seed)
    window = PROMPT + TURN + observation + 2 * TURN + REQUEST
    if window > length // 4:
        raise SystemExit(f"a window of {window} tokens is more than a quarter of {length}")
    size = length if name == "full" else length // 4
    kind = OurSide if name == "full" else Windowed
    side = kind(policy, work, prompts, num_slots=4, micro_batch_tokens=size, seed=args.seed)
    if name != "full":
        side.generator = SlotGenerator(policy, Sampling(1.0), 4, size)
    return side


def measure(args: argparse.Namespace, length: int, name: str) -> None:
    """Two steps of one side; what they took."""
    side = make_side(args, length, name)
    before = resident_bytes()
    restart_peak()
    for _ in range(2):
        side.step()
    write_json(args, {"peak": peak_bytes() - before})


def main() -> None:
    """Measure, print, write."""
    parser = make_parser(__doc__ or "", rounds=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    set_threads(args.threads)
    if args.only:
        name, length = args.only.split("/")
        measure(args, int(length), name)
        return
    rows, measured, ratio = [], dict[str, Any](), dict[str, Any]()
    argv = ["--threads", str(args.threads), "--seed", str(args.seed)]
    # First: the peak of a process counts what the one that started it held.
    alone = {
        (length, name): measure_alone(__file__, f"{name}/{length}", argv)["peak"]
        for length in args.lengths
        for name in SIDES
    }
    for length in args.lengths:
        sides = {name: make_side(args, length, name) for name in SIDES}
        times = take_turns({name: side.step for name, side in sides.items()}, args.rounds)
        peaks = {name: alone[length, name] for name in SIDES}
        measured[str(length)] = {n: {**times[n].facts(), "peak": peaks[n]} for n in sides}
        time = times["window"].wall_s / times["full"].wall_s
        memory = peaks["window"] / peaks["full"]
        ratio[str(length)] = {"time": time, "memory": memory}
        for name in sides:
            rows.append([length, name, times[name].wall_s, peaks[name] / MIB])
        rows.append([length, "window / full", time, memory])
    print_table(["tokens of a task", "side", "s / step", "peak MiB"], rows)
    finish(args, {"ratio": ratio, "measured": measured})


if __name__ == "__main__":
    main()
