"""Cold start: supervised fine-tuning on demonstrations, before GRPO.

Owns the order of things: stages, steps, checkpoints, the evaluation after, and the run folder of an
sft run. What is imitated is `demonstrations.py`, one update is `engine/learning/supervised.py`.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt

from searchrl.config import RunConfig
from searchrl.config.sections import SCRATCH
from searchrl.config.sft import SftStage
from searchrl.engine.learning.checkpoint import load_checkpoint, save_checkpoint, save_policy
from searchrl.engine.learning.supervised import SupervisedLearner
from searchrl.engine.learning.torchrun import ensure_one_process
from searchrl.engine.memory.machine import describe_machine
from searchrl.engine.metrics.evaluation import (
    count_episodes,
    count_tasks,
    evaluate_both,
    summary_metrics,
)
from searchrl.engine.metrics.failures import FailureLimit
from searchrl.engine.metrics.metrics import Metrics, find_headline
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.scratch import make_policy
from searchrl.engine.rollout.drivers import make_driver
from searchrl.engine.rollout.playing import Interrupted
from searchrl.engine.rollout.world import TaskWorld, make_worlds
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import ConfigError
from searchrl.plugins import Registry
from searchrl.programs.agent import ask_line
from searchrl.programs.demonstrations import (
    Demonstration,
    Demonstrator,
    limits_text,
    scripted_texts,
)
from searchrl.programs.observer import Observer, SilentObserver, Work
from searchrl.programs.setup.doubts import few_tasks
from searchrl.programs.setup.indexes import build_indexes
from searchrl.programs.setup.planning import Plan, find_plan, set_threads
from searchrl.programs.stopping import StopFlag, catching_signals, ensure_recorded, keeping_finished
from searchrl.programs.traces import load_traces
from searchrl.run_folder import (
    Run,
    RunWriter,
    choose_folder,
    holding,
    newest_checkpoint,
    rotate_checkpoints,
)
from searchrl.run_folder.changes import describe_sources, ensure_unchanged
from searchrl.run_folder.shapes import Shape
from searchrl.statistics import exact, finite_figures, proportion
from searchrl.trust.permission import trust_created

_DROPOUT = 0xD0


def sft(
    config: RunConfig | Plan | Mapping[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    registry: Registry | None = None,
    trust: bool = False,
    allow_change: bool = False,
) -> Run:
    """Train on demonstrations and return the run folder.

    Args:
        config: a resolved `RunConfig` or `Plan`, or settings; `model.name: scratch` makes a new
            small model.
        resume: an sft run to continue from its newest checkpoint; a finished one is returned as it
            is, and `observer` is told.
        observer: told of everything that happens.
        registry: loaded plugins; by default the installed ones and `config.plugins`.
        trust: allow the code that a run folder names (`resume`, `init_from`), this once.
        allow_change: with `resume`, go on though data, an environment or a plugin has changed.

    Raises:
        SearchRLError: for anything a user can fix.
        ChangedError: if something has changed since the run began and that is not allowed.
        RunInUseError: if another process works on the run folder.
        KeyboardInterrupt: after Ctrl-C, with a checkpoint written; after SIGTERM and SIGHUP it is
            a `Stopped`.

    Whatever is raised once the run has begun, a checkpoint of the last finished step is written
    first and the observer is told how to go on.
    """
    ensure_one_process("sft")
    observer = observer or SilentObserver()
    if resume is not None and (end := Run.open(resume).find_end()):
        observer.last_words(end)
        return Run(Path(resume))
    plan, registry = find_plan("sft", config, resume, registry, observer.note, trust=trust)
    plan.ensure_weights()
    folder = None if resume is not None else choose_folder(plan.config)
    with ExitStack() as stack:
        stack.enter_context(holding(folder or Path(str(resume))))
        worlds = make_worlds(plan.config, registry)
        for world in worlds:
            stack.callback(world.close)
        build_indexes(worlds, observer.phase)
        course = _Course(plan, registry, worlds, observer)
        course.open(folder, resume, allow_change)
        path = course.writer.path
        ending = keeping_finished("sft", path, course.save, observer.last_words)
        with catching_signals() as stop, ending:
            course.train(stop)
            save_policy(path, course.policy)
            summary = course.finish(stop)
    observer.done(path, summary)
    return Run(path)


@dataclass(slots=True)
class _Progress:
    """How far a run has come: what its checkpoints hold beside weights and optimiser."""

    step: int = 0
    demos: int = 0
    cut_demos: int = 0


class _ProgressShape(Shape, extra="forbid"):
    """`_Progress` as `state.json` has it."""

    step: NonNegativeInt
    demos: NonNegativeInt = 0
    cut_demos: NonNegativeInt = 0


class _Course:
    """A cold start: what it holds, where it writes, how far it has come."""

    writer: RunWriter

    def __init__(
        self, plan: Plan, registry: Registry, worlds: Sequence[TaskWorld], observer: Observer
    ) -> None:
        self.config = plan.config
        self.registry = registry
        self.worlds = worlds
        self.observer = observer
        self.progress = _Progress()
        self.unrecorded = 0
        self.num_tasks = count_tasks(worlds, self.config.eval)
        settings = self.config.sft
        traces = load_traces(settings.traces) if settings.traces else None
        for stage in settings.stages if traces is None else ():
            for name in stage.mix:
                for world in worlds:
                    world.script(name)
        self.policy = _make_policy(plan, worlds)
        is_new = self.config.model.name == SCRATCH
        self.label = self.policy.source if is_new else plan.model.label
        self.learner = SupervisedLearner(
            self.policy, settings.max_grad_norm, settings.micro_batch_tokens
        )
        # No longer than the policy's positions: more give nonsense.
        model, longest = self.config.model, self.policy.max_positions
        fitted = model.model_copy(update={"max_context": min(model.max_context, longest)})
        self.fitted = self.config.model_copy(update={"model": fitted})
        self.demonstrate = Demonstrator(self.fitted, worlds, self.policy, traces)

    def open(self, folder: Path | None, resume: str | Path | None, allow_change: bool) -> None:
        """Make the run folder, or go back to the newest checkpoint of an old one."""
        if resume is None:
            assert folder is not None
            self._begin(folder)
        else:
            self._reopen(Path(resume), allow_change)
        stages, settings = self.config.sft.stages, self.config.eval
        work = Work(
            steps=sum(stage.steps for stage in stages),
            per_step=max(stage.batch_size for stage in stages),
            after=count_episodes(self.worlds, settings, settings.split, settings.num_tasks),
            done=self.progress.step,
            rows=Run(self.writer.path).read_metrics().rows,
        )
        self.observer.begin(work)

    def _reopen(self, run_dir: Path, allow_change: bool) -> None:
        changed = ensure_unchanged(
            Run(run_dir), self.config, self.registry, self.num_tasks, allow=allow_change
        )
        newest = newest_checkpoint(run_dir)
        for fault in newest.faults:
            self.observer.warn(fault)
        state = load_checkpoint(newest.folder, self.policy, self.learner, _ProgressShape)
        self.progress = _Progress(**state)
        warn = self.observer.warn
        self.writer = RunWriter.reopen(run_dir, self.progress.step, on_note=warn)
        if not self.writer.has_provenance:
            self._record_origin()
        self.writer.update_provenance(**changed)
        self.observer.note(f"resumed {run_dir} after step {self.progress.step}")

    def _begin(self, folder: Path) -> None:
        config, policy = self.config, self.policy
        self.writer = RunWriter.create(config, folder)
        self._record_origin()
        if note := trust_created(config, self.registry, folder):
            self.observer.warn(note)
        facts = {"model": self.label, "device": str(policy.device), "run": str(folder)}
        for number, stage in enumerate(config.sft.stages, start=1):
            mix = ", ".join(f"{weight:g} {name}" for name, weight in stage.mix.items())
            facts[f"stage {number}"] = (
                f"{stage.steps} steps of {stage.batch_size} demonstrations "
                f"({config.sft.traces or mix}), lr {stage.lr:g}"
            )
        self.observer.plan(config, facts)
        for doubt in few_tasks(config, self.worlds):
            self.observer.warn(doubt)

    def _record_origin(self) -> None:
        """Write `provenance.json`: what this run is made with."""
        self.writer.write_provenance(
            self.registry.provenance(),
            program="sft",
            machine=describe_machine(self.policy.device),
            seed=self.config.seed,
            fingerprint=self.config.fingerprint,
            model=self.policy.source,
            **describe_sources(self.config, self.num_tasks),
        )

    def train(self, stop: StopFlag) -> None:
        """Take the steps that are left of all stages."""
        config, progress = self.config, self.progress
        total = sum(stage.steps for stage in config.sft.stages)
        steps = list(enumerate(_schedule(config.sft.stages)))[progress.step :]
        for step, stage, stage_step, demonstrations in _ahead(steps, self.demonstrate):
            started = time.perf_counter()
            counted = self.count_cut(step, demonstrations)
            dropout_seed = mix_key(config.seed, _DROPOUT, step) >> 1
            # One without a whole turn teaches nothing; its prompt may be too long to be read.
            trajectories = [d.trajectory for d in demonstrations if d.trajectory.turns]
            stats = self.learner.train_step(trajectories, stage, stage_step, seed=dropout_seed)
            self.unrecorded = step + 1
            num_tokens = int(stats.pop("num_tokens"))
            figures = finite_figures(stats)
            metrics = {name: exact(value, num_tokens) for name, value in figures.items()}
            num_cut = sum(demonstration.is_cut for demonstration in demonstrations)
            metrics["cut_demos"] = proportion(num_cut, len(demonstrations))
            metrics["tokens_per_s"] = exact(num_tokens / (time.perf_counter() - started))
            self.writer.log(step + 1, metrics, "sft")
            progress.step, progress.demos, progress.cut_demos = step + 1, *counted
            self.unrecorded = 0
            self.observer.step(step + 1, total, metrics)
            if (step + 1) % config.checkpoint.every == 0 or step + 1 == total:
                self.save()
            if stop.asked:
                raise Interrupted
        if progress.cut_demos:
            self.observer.note(
                f"{progress.cut_demos} of {progress.demos} demonstrations were cut at a token "
                "limit and trained without the turns that did not fit "
                f"({limits_text(self.fitted)})"
            )

    def count_cut(self, step: int, demonstrations: Sequence[Demonstration]) -> tuple[int, int]:
        """Demonstrations so far and those cut, this step's among them; says so the first time.

        Raises:
            ConfigError: if no demonstration was whole so far: none would show how to end.
        """
        progress, num_demos = self.progress, len(demonstrations)
        num_cut = sum(demonstration.is_cut for demonstration in demonstrations)
        limits = limits_text(self.fitted)
        if num_cut and not progress.cut_demos:
            self.observer.note(
                f"step {step + 1}: {num_cut} of {num_demos} demonstrations were cut at a token "
                f"limit; turns that do not fit are left out ({limits})"
            )
        demos, cut_demos = progress.demos + num_demos, progress.cut_demos + num_cut
        if cut_demos == demos:
            raise ConfigError(
                f"every demonstration so far ({num_demos} of {num_demos}) was cut at a token "
                f"limit: they do not fit {limits}; raise them"
            )
        return demos, cut_demos

    def save(self) -> int:
        """Write the checkpoint of the last finished step; returns its number.

        Raises:
            RuntimeError: see `ensure_recorded`.
        """
        ensure_recorded(self.unrecorded)
        path, settings = self.writer.path, self.config.checkpoint
        save_checkpoint(path, self.policy, self.learner, asdict(self.progress))
        rotate_checkpoints(path, settings.keep_last, None)
        return self.progress.step

    def evaluate(self, stop: StopFlag) -> Metrics:
        """The evaluation after, recorded."""
        config, observer = self.config, self.observer
        after = evaluate_both(
            self.worlds,
            make_driver(self.policy, config, self.registry, config.eval),
            config.eval,
            seed=config.seed,
            on_phase=lambda name, done, total: observer.phase(f"{name} (after)", done, total),
            should_stop=stop,
        )
        limit = FailureLimit(
            "the cold start",
            config.rollout.max_failure_frac,
            self.writer.write_failure,
            observer.note,
            f"Fix it, then continue with: searchrl sft --resume {self.writer.path}",
        )
        limit.ensure((*after.rollouts, *after.forced), "the evaluation after", "eval_after")
        self.writer.log(self.progress.step, after.metrics, "after")
        observer.evaluation("after", self.progress.step, after.metrics)
        return after.metrics

    def finish(self, stop: StopFlag) -> dict[str, Any]:
        """The summary, after an evaluation if it was not recorded before a stop."""
        config, path, step = self.config, self.writer.path, self.progress.step
        after = Run(path).measured("after", step)
        if after is None:
            after = self.evaluate(stop)
        summary = {
            "env": [task.env.name for task in config.tasks],
            "model": self.policy.source,
            "seed": config.seed,
            "steps": step,
            "fingerprint": config.fingerprint,
            "headline": find_headline(self.worlds),
            "after": summary_metrics(after, self.worlds),
            "policy": str(path / "policy"),
            "train": f"searchrl train --init-from {shlex.quote(str(path))}",
            **ask_line(path, self.worlds),
        }
        self.writer.write_summary(summary)
        return summary


def _make_policy(plan: Plan, worlds: Sequence[TaskWorld]) -> Policy:
    """Load the policy, or make a new one whose tokenizer has read scripted episodes."""
    config = plan.config
    if config.model.name != SCRATCH:
        return plan.load_policy(trainable=True)
    set_threads(config)
    texts = scripted_texts(config, worlds)
    scratch, context = config.model.scratch, config.model.max_context
    return make_policy(scratch, texts, plan.device, context, config.seed)


def _ahead(
    steps: Sequence[tuple[int, tuple[SftStage, int]]], demonstrate: Demonstrator
) -> Iterator[tuple[int, SftStage, int, list[Demonstration]]]:
    """Each step with its demonstrations. Scripts need no weights: they play one step ahead."""
    with ThreadPoolExecutor(max_workers=1) as pool, _short_turns():
        waiting = [pool.submit(demonstrate, stage, step) for step, (stage, _) in steps[:1]]
        for place, (step, (stage, stage_step)) in enumerate(steps):
            for later, (later_stage, _) in steps[place + 1 : place + 2]:
                waiting.append(pool.submit(demonstrate, later_stage, later))
            yield step, stage, stage_step, waiting.pop(0).result()


@contextmanager
def _short_turns() -> Iterator[None]:
    """Threads take turns of 0.2 ms instead of Python's 5 ms.

    Most operations of a small model are shorter than 5 ms: at each of them the learner would wait
    for the scripts.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _schedule(stages: Sequence[SftStage]) -> Iterator[tuple[SftStage, int]]:
    """(stage, step within it) for every step of the run."""
    for stage in stages:
        for step in range(stage.steps):
            yield stage, step
