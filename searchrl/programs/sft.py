"""Cold start: supervised fine-tuning on demonstrations, before GRPO.

Owns the order of things: stages, steps, checkpoints, the evaluation after, and the run folder of an
sft run. What is imitated is `demonstrations.py`, one update is `engine/learning/supervised.py`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, NonNegativeInt

from searchrl.config import RunConfig
from searchrl.config.sections import SCRATCH
from searchrl.engine.learning.sharing import share_driver
from searchrl.engine.learning.supervised import SupervisedLearner
from searchrl.engine.model.scratch import make_policy
from searchrl.engine.rollout.rollout import Interrupted
from searchrl.engine.rollout.worlds import build_indexes
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import ConfigError
from searchrl.plugins import Registry
from searchrl.programs.demonstrations import Demonstrator, scripted_texts
from searchrl.programs.setup.planning import Plan, set_threads
from searchrl.programs.setup.session import Setup
from searchrl.programs.setup.warnings import few_tasks
from searchrl.programs.stopping import StopFlag
from searchrl.programs.traces import load_traces
from searchrl.programs.training_run import TrainingRun, run_training
from searchrl.run_folder import Run
from searchrl.run_folder.shapes import Shape
from searchrl.screen.observer import Observer
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
    return run_training(_ColdStart, config, resume, observer, quiet, registry, trust, allow_change)


class _Progress(Shape, extra="forbid"):
    """Contents of checkpoints beside weights and optimiser."""

    step: NonNegativeInt = 0
    demos: NonNegativeInt = 0
    cut_demos: NonNegativeInt = 0
    searches: dict[str, dict[str, float]] = Field(default_factory=dict)


class _Demonstrated(Setup):
    """A policy, a supervised learner, and demonstrations for it."""

    learner: SupervisedLearner

    def make(self) -> None:
        """Make them; ConfigError for a script that an environment does not have."""
        plan, config, settings = self.plan, self.config, self.config.sft
        build_indexes(self.worlds, self.on_phase)
        traces = load_traces(settings.traces) if settings.traces else None
        for stage in settings.stages if traces is None else ():
            for name in stage.mix:
                for world in self.worlds:
                    world.script(name)
        is_sharded = self.is_to_shard()
        if config.model.name == SCRATCH:
            set_threads(config)
            texts = scripted_texts(config, self.worlds)  # for its tokenizer to read
            context = config.model.max_context
            policy = make_policy(config.model.scratch, texts, plan.device, context, config.seed)
            self.label = policy.source
        else:
            policy = plan.load_policy(trainable=True, is_to_shard=is_sharded)
            self.label = plan.model.label
        if is_sharded:
            policy.shard(is_sampled_here=config.engine.is_sampled_here)
        self.policy = policy
        self.learner = SupervisedLearner(
            policy, settings.max_grad_norm, settings.micro_batch_tokens, self.workers
        )
        # No longer than the policy's positions: more give nonsense.
        longest = min(config.model.max_context, policy.max_positions)
        model = config.model.model_copy(update={"max_context": longest})
        self.fitted = config.model_copy(update={"model": model})
        self.demonstrate = Demonstrator(self.fitted, self.worlds, policy, traces)
        share_driver(self.demonstrate.driver, self.workers)


class _ColdStart(TrainingRun):
    program = "sft"
    makes = _Demonstrated
    session: _Demonstrated
    progress: _Progress

    def __init__(self, session: _Demonstrated, observer: Observer, stop: StopFlag) -> None:
        super().__init__(session, observer, stop)
        self.progress = _Progress()
        stages = session.config.sft.stages
        self.steps = [(stage, number) for stage in stages for number in range(stage.steps)]
        self.num_steps = len(self.steps)

    def facts(self) -> dict[str, Any]:
        """The plan, as it is shown before the first step."""
        session, settings = self.session, self.session.config.sft
        device, path = str(session.policy.device), str(self.writer.path)
        facts = {"model": session.label, "device": device, "run": path}
        for number, stage in enumerate(settings.stages, start=1):
            mix = ", ".join(f"{weight:g} {name}" for name, weight in stage.mix.items())
            facts[f"stage {number}"] = (
                f"{stage.steps} steps of {stage.batch_size} demonstrations "
                f"({settings.traces or mix}), lr {stage.lr:g}"
            )
        return facts

    def warnings(self) -> Iterator[str]:
        """Yield what makes the figures worthless."""
        return few_tasks(self.session.config, self.session.worlds)

    def run(self) -> dict[str, Any]:
        """Take the steps that are left of all stages, evaluate and write the summary."""
        session, config, progress = self.session, self.session.config, self.progress
        limits = (
            f"rollout.max_turn_tokens={config.rollout.max_turn_tokens}, "
            f"rollout.max_total_tokens={config.rollout.max_total_tokens}, "
            f"model.max_context={session.fitted.model.max_context}"
        )
        for step, (stage, stage_step) in [*enumerate(self.steps)][progress.step :]:
            started = time.perf_counter()
            demonstrations = session.demonstrate(stage, step)
            num_cut = sum(demonstration.is_cut for demonstration in demonstrations)
            demos = progress.demos + len(demonstrations)
            cut_demos = progress.cut_demos + num_cut
            if cut_demos == demos:  # none would show how to end
                raise ConfigError(
                    f"every demonstration so far ({demos} of {demos}) was cut at a token limit: "
                    f"they do not fit {limits}; raise them"
                )
            dropout_seed = mix_key(config.seed, _DROPOUT, step) >> 1
            # One without a whole turn teaches nothing; its prompt may be too long to be read.
            trajectories = [d.trajectory for d in demonstrations if d.trajectory.turns]
            stats = session.learner.train_step(trajectories, stage, stage_step, seed=dropout_seed)
            self.unrecorded = step + 1
            num_tokens = int(stats.pop("num_tokens"))
            figures = finite_figures(stats)
            metrics = {name: exact(value, num_tokens) for name, value in figures.items()}
            metrics["epochs"] = exact(demos / session.demonstrate.num_different)
            metrics["cut_demos"] = proportion(num_cut, len(demonstrations))
            metrics["tokens_per_s"] = exact(num_tokens / (time.perf_counter() - started))
            self.writer.log(step + 1, metrics, "sft")
            progress.step, progress.demos, progress.cut_demos = step + 1, demos, cut_demos
            self.unrecorded = 0
            self.observer.step(step + 1, self.num_steps, metrics)
            if (step + 1) % config.checkpoint.every == 0 or step + 1 == self.num_steps:
                self.save()
            if session.workers.agree_to_stop(self.stop.is_requested):
                raise Interrupted
        if progress.cut_demos:
            self.observer.note(
                f"{progress.cut_demos} of {progress.demos} demonstrations were cut at a token "
                f"limit and trained without the turns that did not fit ({limits})"
            )
        way_on = f"searchrl train --init-from {shlex.quote(str(self.writer.path))}"
        return self.finish(train=way_on)
