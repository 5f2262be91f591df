"""Trees against chains, and what the probes of `igpo` cost: seconds and tokens of a step.

    python benchmarks/bench_tree.py [--turns 4] [--answers 1] [--threads N] [--json FILE]

A tree is a chain of `turns` turns and `leaves - 1` branches behind its turn 2; beside it stand as
many chains. Both are sampled by the slot engine and trained packed, then padded. `sampled` counts
the tokens that the model wrote, `computed` those of an update, padding included; `ratio` is tree /
chains. `probes` is (CPU seconds of an update of `igpo` on the chains) / (one of GRPO) - 1: each of
`answers` gold answers is read before each turn. Needs searchrl-credit.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from measuring import finish, make_parser, print_table, set_threads, take_turns


def main() -> None:
    """Measure, print, write."""
    parser = make_parser(__doc__ or "")
    parser.add_argument("--model", default="tiny", help="tiny, or a model folder")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--leaves", type=int, default=4, help="rollouts of a prompt")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32, help="of every turn")
    parser.add_argument("--observation-tokens", type=int, default=64, help="between two turns")
    parser.add_argument("--answers", type=int, default=1, help="gold answers of a question")
    args = parser.parse_args()
    set_threads(args.threads)
    from workload import OurSide, Workload, load_bench_policy, make_prompts

    from searchrl.core.trajectory import Trajectory
    from searchrl.engine.sampling.generator import mix_key

    class TreeSide(OurSide):
        """One chain of each prompt, and branches behind its turn 2."""

        def sample(self) -> list[Trajectory]:
            chains, open_ = super().sample(), {}
            for number, chain in enumerate(chains):
                ids = chain.segments[0].ids[: chain.turns[2].start]
                keys = [mix_key(self.num_steps, number, n) for n in range(1, args.leaves)]
                for n, handle in enumerate(self.generator.open(ids, len(keys), keys), 1):
                    trajectory = Trajectory(f"{chain.rollout_id}/{n}", chain.group_id)
                    trajectory.parent, trajectory.num_kept = chain.rollout_id, 2
                    trajectory.append_prompt(ids)
                    self.generator.submit(handle, (), (), args.tokens)
                    open_[handle] = trajectory
            return chains + self._finish(open_)

    def make_side(kind: Any, group_size: int, is_packed: bool = True) -> OurSide:
        sizes = args.prompt_tokens, args.tokens, args.turns, args.observation_tokens
        work = Workload(args.prompts, group_size, *sizes)
        policy = load_bench_policy(args.model)
        prompts = make_prompts(policy.tokenizer, work, args.seed)
        side: OurSide = kind(policy, work, prompts, micro_batch_tokens=4096, seed=args.seed)
        if not is_packed:
            side.learner.packing_fault = "measured without"
        return side

    sides = {
        (name, form): make_side(kind, size, form == "packed")
        for form in ("packed", "padded")
        for name, kind, size in (("chains", OurSide, args.leaves), ("tree", TreeSide, 1))
    }
    times = take_turns({" ".join(key): side.step for key, side in sides.items()}, args.rounds)
    result: dict[str, Any] = {"ratio": {}, "sides": {}}
    rows: list[list[Any]] = []
    for (name, form), side in sides.items():
        made, time = side.sample(), times[f"{name} {form}"]
        sampled, computed = sum(one.num_model_tokens for one in made), side.num_trained(made)
        if name == "tree":
            chains = result["sides"][f"chains {form}"]
            result["ratio"][form] = time.cpu_s / chains["cpu_s"]
        result["sides"][f"{name} {form}"] = {
            **time.facts(), "sampled": sampled, "computed": computed,
        }  # fmt: skip
        ratio = result["ratio"].get(form) if name == "tree" else None
        rows.append([name, form, time.wall_s, time.cpu_s, sampled, computed, ratio])
    print_table(["rollouts", "update", "s", "CPU s", "sampled", "computed", "ratio"], rows)
    result["probes"], seconds = measure_probes(args, make_side(OurSide, args.leaves))
    print(f"\nprobes: {result['probes']:.1%} of an update ({seconds})")
    finish(args, result)


def measure_probes(args: Any, side: Any) -> tuple[float, str]:
    """Share of an update, and both in seconds."""
    from searchrl_credit.gain import make_igpo

    from searchrl.contracts import Task
    from searchrl.core.group import Group, TrainItem
    from searchrl.engine.learning import before_update
    from searchrl.protocols import ThinkSearchAnswer

    answers = tuple(f"the answer {number}" for number in range(args.answers))
    task = Task("t", "train", 0, "?", answers)
    groups = [
        Group(one.id, tuple(TrainItem(r.trajectory, r.reward, task=task) for r in one.rollouts))
        for one in side._score(side.sample())
    ]
    learner, grpo, igpo = side.learner, side.learner.algorithm, make_igpo()

    def read(probes: Any) -> Any:
        with learner.computing():
            return before_update.read(learner, probes)

    trainer: Any = SimpleNamespace(
        seed=args.seed, env_names=[""], protocols=[ThinkSearchAnswer()], read=read
    )
    igpo.hooks.begin(trainer)

    def update(algorithm: Any) -> None:
        learner.algorithm = algorithm
        learner.train_step(groups)

    sides = {"grpo": partial(update, grpo), "igpo": partial(update, igpo)}
    times = take_turns(sides, 2 * args.rounds)
    seconds = ", ".join(f"{name} {time.cpu_s:.3g} s of CPU" for name, time in times.items())
    return times["igpo"].cpu_s / times["grpo"].cpu_s - 1, seconds


if __name__ == "__main__":
    main()
