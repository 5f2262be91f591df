"""Cold start: supervised fine-tuning on demonstrations, before GRPO.

Owns the order of things: stages, steps, checkpoints, the evaluation after, and the run folder of an
sft run. What is imitated is `demonstrations.py`, one update is `engine/learning/supervised.py`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt

from searchrl.config import RunConfig
from searchrl.config.sections import SCRATCH
from searchrl.engine.learning.supervised import SupervisedLearner
from searchrl.engine.learning.torchrun import ensure_one_process
from searchrl.engine.model.scratch import make_policy
from searchrl.engine.rollout.drivers import make_driver
from searchrl.engine.rollout.rollout import Interrupted
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import build_indexes, make_worlds
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import ConfigError
from searchrl.plugins import Registry
from searchrl.programs.demonstrations import Demonstrator, limits_text, scripted_texts
from searchrl.programs.setup.planning import Plan, prepare, set_threads
from searchrl.programs.setup.warnings import few_tasks
from searchrl.programs.stopping import StopFlag, catching_signals, keeping_finished
from searchrl.programs.traces import load_traces
from searchrl.programs.training_run import TrainingRun
from searchrl.run_folder import Run, choose_folder, holding
from searchrl.run_folder.shapes import Shape
from searchrl.screen.observer import Observer, make_observer
from searchrl.statistics import exact, finite_figures, proportion
from searchrl.trust.permission import Permission

_DROPOUT = 0xD0


def sft(
    config: RunConfig | Plan | Mapping[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
    registry: Registry | None = None,
    trust: bool | Permission = False,
    allow_change: bool = False,
) -> Run:
    """Train on demonstrations and return the run folder.

    Arguments, errors and what happens to a run that ends early are those of `train`. `config` may
    name the model `scratch`, which makes a new small one.
    """
    ensure_one_process("sft")
    with make_observer(observer, quiet=quiet) as observer:
        if resume is not None and (end := Run.open(resume).find_end()):
            observer.last_words(end)
            return Run(Path(resume))
        plan, registry = prepare(
            "sft", config, resume=resume, registry=registry, on_note=observer.note, trust=trust
        )
        plan.ensure_weights()
        folder = choose_folder(plan.config) if resume is None else Path(resume)
        with catching_signals() as stop, holding(folder), ExitStack() as stack:
            worlds = make_worlds(plan.config, registry)
            for world in worlds:
                stack.callback(world.close)
            build_indexes(worlds, observer.phase)
            run = _ColdStart(plan, registry, worlds, observer, stop)
            steps = sum(stage.steps for stage in plan.config.sft.stages)
            old = None if resume is None else folder
            run.open(folder, old, steps, allow_change=allow_change)
            with keeping_finished("sft", folder, run.save, observer.last_words):
                run.train()
                way_on = f"searchrl train --init-from {shlex.quote(str(folder))}"
                summary = run.finish(train=way_on)
        observer.done(folder, summary)
        return Run(folder)


class _Progress(Shape, extra="forbid"):
    """Contents of checkpoints beside weights and optimiser."""

    step: NonNegativeInt = 0
    demos: NonNegativeInt = 0
    cut_demos: NonNegativeInt = 0


class _ColdStart(TrainingRun):
    program = "sft"
    progress: _Progress

    def __init__(
        self,
        plan: Plan,
        registry: Registry,
        worlds: Sequence[TaskWorld],
        observer: Observer,
        stop: StopFlag,
    ) -> None:
        config, settings = plan.config, plan.config.sft
        traces = load_traces(settings.traces) if settings.traces else None
        for stage in settings.stages if traces is None else ():
            for name in stage.mix:
                for world in worlds:
                    world.script(name)
        if config.model.name == SCRATCH:
            set_threads(config)
            texts = scripted_texts(config, worlds)  # for its tokenizer to read
            context = config.model.max_context
            policy = make_policy(config.model.scratch, texts, plan.device, context, config.seed)
            self.label = policy.source
        else:
            policy, self.label = plan.load_policy(trainable=True), plan.model.label
        learner = SupervisedLearner(policy, settings.max_grad_norm, settings.micro_batch_tokens)
        evaluator = make_driver(policy, config, registry, config.eval)
        super().__init__(config, registry, worlds, policy, learner, evaluator, observer, stop)
        self.learner: SupervisedLearner = learner
        self.progress = _Progress()
        # No longer than the policy's positions: more give nonsense.
        longest = min(config.model.max_context, policy.max_positions)
        model = config.model.model_copy(update={"max_context": longest})
        self.fitted = config.model_copy(update={"model": model})
        self.demonstrate = Demonstrator(self.fitted, worlds, policy, traces)

    def facts(self) -> dict[str, Any]:
        """The plan, as it is shown before the first step."""
        settings, device, path = self.config.sft, str(self.policy.device), str(self.writer.path)
        facts = {"model": self.label, "device": device, "run": path}
        for number, stage in enumerate(settings.stages, start=1):
            mix = ", ".join(f"{weight:g} {name}" for name, weight in stage.mix.items())
            facts[f"stage {number}"] = (
                f"{stage.steps} steps of {stage.batch_size} demonstrations "
                f"({settings.traces or mix}), lr {stage.lr:g}"
            )
        return facts

    def warnings(self) -> Iterator[str]:
        """Yield what makes the figures worthless."""
        return few_tasks(self.config, self.worlds)

    def train(self) -> None:
        """Take the steps that are left of all stages."""
        config, progress = self.config, self.progress
        steps = [(stage, number) for stage in config.sft.stages for number in range(stage.steps)]
        for step, (stage, stage_step) in [*enumerate(steps)][progress.step :]:
            started = time.perf_counter()
            demonstrations = self.demonstrate(stage, step)
            num_cut = sum(demonstration.is_cut for demonstration in demonstrations)
            demos = progress.demos + len(demonstrations)
            cut_demos, limits = progress.cut_demos + num_cut, limits_text(self.fitted)
            if cut_demos == demos:  # none would show how to end
                raise ConfigError(
                    f"every demonstration so far ({demos} of {demos}) was cut at a token limit: "
                    f"they do not fit {limits}; raise them"
                )
            dropout_seed = mix_key(config.seed, _DROPOUT, step) >> 1
            # One without a whole turn teaches nothing; its prompt may be too long to be read.
            trajectories = [d.trajectory for d in demonstrations if d.trajectory.turns]
            stats = self.learner.train_step(trajectories, stage, stage_step, seed=dropout_seed)
            self.unrecorded = step + 1
            num_tokens = int(stats.pop("num_tokens"))
            figures = finite_figures(stats)
            metrics = {name: exact(value, num_tokens) for name, value in figures.items()}
            metrics["epochs"] = exact(demos / self.demonstrate.num_different)
            metrics["cut_demos"] = proportion(num_cut, len(demonstrations))
            metrics["tokens_per_s"] = exact(num_tokens / (time.perf_counter() - started))
            self.writer.log(step + 1, metrics, "sft")
            progress.step, progress.demos, progress.cut_demos = step + 1, demos, cut_demos
            self.unrecorded = 0
            self.observer.step(step + 1, len(steps), metrics)
            if (step + 1) % config.checkpoint.every == 0 or step + 1 == len(steps):
                self.save()
            if self.stop.asked:
                raise Interrupted
        if progress.cut_demos:
            self.observer.note(
                f"{progress.cut_demos} of {progress.demos} demonstrations were cut at a token "
                f"limit and trained without the turns that did not fit ({limits_text(self.fitted)})"
            )
