"""The common part of `train` and `sft`: a run begins or is resumed, is recorded, and ends.

The steps are those of the programs. Changes since a run began are found by `run_folder.changes`.
Ctrl-C and errors, whoever raises them, lose no finished step. A kill, or a disk too full for a
checkpoint, loses what came after the last one. Resumed, a run continues exactly.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

from searchrl.config import RunConfig
from searchrl.config.sections import EvalConfig
from searchrl.engine.learning.checkpoint import load_checkpoint, save_checkpoint, save_policy
from searchrl.engine.learning.torchrun import read_place
from searchrl.engine.learning.workers import Workers
from searchrl.engine.memory.machine import describe_machine
from searchrl.engine.metrics.evaluation import (
    EvalResult,
    count_tasks,
    evaluate_both,
    summary_metrics,
)
from searchrl.engine.metrics.failures import FailureLimit
from searchrl.engine.metrics.metrics import Metrics, find_headline
from searchrl.engine.metrics.remarks import find_remarks
from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.rollout import Interrupted
from searchrl.engine.rollout.world import TaskWorld
from searchrl.errors import AlarmStop, BudgetSpent, DamagedError, FailureLimitError
from searchrl.plugins import Registry
from searchrl.plugins.provenance import Origin
from searchrl.programs.agent import ask_line
from searchrl.programs.setup.objects import take_objects
from searchrl.programs.setup.planning import Plan, prepare
from searchrl.programs.setup.session import Setup
from searchrl.programs.stopping import StopFlag, catching_signals, keeping_finished
from searchrl.retrieval.recorded import begin_counting, count_searches, describe_searches
from searchrl.run_folder import (
    Run,
    RunWriter,
    choose_folder,
    holding,
    newest_checkpoint,
    rotate_checkpoints,
)
from searchrl.run_folder.changes import describe_sources, ensure_unchanged
from searchrl.screen.console import make_observer
from searchrl.screen.observer import Observer
from searchrl.tracing import TRACER
from searchrl.trackers.feed import Trackers
from searchrl.trust.permission import Permission, trust_created


class TrainingRun:
    """A run that is under way: what it holds, where it writes, how far it has come."""

    program: ClassVar[Literal["train", "sft"]]
    makes: ClassVar[type[Setup]]
    """The objects that it works with."""
    progress: Any
    """A `Shape` with `step` and `searches`: what checkpoints hold beside weights and optimiser."""
    num_steps: int
    """Steps of the whole run."""
    writer: RunWriter
    trackers: Trackers

    def __init__(self, session: Setup, observer: Observer, stop: StopFlag) -> None:
        self.session, self.observer, self.stop = session, observer, stop
        self.evaluator = session.make_driver(session.config.eval)
        self.num_tasks = count_tasks(session.worlds, session.config.eval)
        self.unrecorded = 0
        """A step that has begun to change weights and is not on disk yet."""

    def run(self) -> dict[str, Any]:
        """Take the steps that are left; returns the summary."""
        raise NotImplementedError

    @property
    def objects(self) -> list[str]:
        """Names of the classes and functions that a Python program gave."""
        entries = self.session.registry.entries()
        return [entry.name for entry in entries if entry.owner.origin is Origin.PYTHON]

    @property
    def command(self) -> str:
        """The way to resume it: a command or, with objects, in Python."""
        path = str(self.writer.path)
        if self.objects:
            return f"searchrl.{self.program}({{…}}, resume={path!r})"
        return f"searchrl {self.program} --resume {shlex.quote(path)}"

    def origin(self) -> dict[str, Any]:
        """Return what the provenance holds of this program alone."""
        return {}

    def facts(self) -> dict[str, Any]:
        """The plan, as it is shown before the first step."""
        raise NotImplementedError

    def warnings(self) -> Iterable[str]:
        """Yield what makes the run hopeless or its figures worthless."""
        raise NotImplementedError

    def notes(self) -> Iterable[str]:
        """Yield notes for the user before the first step of a new run or a resumed one."""
        return ()

    def open(self, folder: Path | None, resume: Path | None, *, allow_change: bool) -> None:
        """Make the run folder, or go back to the newest whole checkpoint of an old one.

        `folder` is that of a new run, None in all processes but the first. ChangedError if
        something has changed since the run began, DamagedError if no checkpoint is whole.
        """
        learner = self.session.learner
        learner.ensure_same_weights("at the start")
        if resume is None:
            self._begin(folder)
        else:
            self._reopen(resume, allow_change)
            learner.ensure_same_weights(f"resumed after step {self.progress.step}")
        if self.objects:
            self.observer.note(
                f"{', '.join(self.objects)}: given in Python, so no command can resume this run; "
                f"this does, with the same objects: {self.command}"
            )
        self.limit = FailureLimit(
            "training" if self.program == "train" else "the cold start",
            self.session.config.rollout.max_failure_frac,
            self.writer.write_failure,
            self.observer.note,
            f"Fix it, then continue with: {self.command}",
        )

    def _begin(self, folder: Path | None) -> None:
        notes, observer = [*self.notes()], self.observer  # a judge without a key is refused
        session, config = self.session, self.session.config
        # The first process makes the folder; the others only have to know where it is.
        writer = None if folder is None else RunWriter.create(config, folder)
        path = session.workers.gather(folder)[0]
        assert path is not None
        self.writer = writer or RunWriter(path, is_silent=True)
        self._record_origin()
        observer.begin(self.num_steps)
        if note := trust_created(config, session.registry, path):
            observer.warn(note)
        observer.plan(config, self.facts())
        for text in self.warnings():
            observer.warn(text)
        for text in notes:
            observer.note(text)

    def _reopen(self, folder: Path, allow_change: bool) -> None:
        observer, run, session = self.observer, Run(folder), self.session
        changed = ensure_unchanged(
            run, session.config, session.registry, self.num_tasks, allow=allow_change
        )
        newest = newest_checkpoint(folder)
        for fault in newest.notes:
            observer.warn(fault)
        state = load_checkpoint(newest.folder, session.policy, session.learner, type(self.progress))
        self.progress = type(self.progress)(**state)
        self.writer = RunWriter.reopen(
            folder,
            self.progress.step,
            evaluated=state.get("evaluated"),
            on_note=observer.warn,
            is_silent=not session.workers.is_first,
        )
        if not self.writer.has_provenance:
            self._record_origin()
        self.writer.update_provenance(**changed)
        observer.begin(self.num_steps, self.progress.step, run.read_metrics().rows)
        observer.note(f"resumed {folder} after step {self.progress.step}")
        for text in self.notes():
            observer.note(text)

    def _record_origin(self) -> None:
        session, policy = self.session, self.session.policy
        trainable, total = policy.num_parameters
        self.writer.write_provenance(
            session.registry.provenance(),
            program=self.program,
            machine=describe_machine(policy.device),
            seed=session.seed,
            fingerprint=session.config.fingerprint,
            model=policy.source,
            device=str(policy.device),
            trainable_parameters=trainable,
            parameters=total,
            **self.origin(),
            **describe_sources(session.config, self.num_tasks),
        )

    def log(self, step: int, metrics: Metrics, phase: str) -> None:
        """Record the metrics of a training step or an evaluation."""
        self.writer.log(step, metrics, phase)

    def record(self, result: EvalResult, phase: str, step: int, where: str) -> None:
        """Write the episodes of an evaluation and, unless too many failed, its figures."""
        log = self.session.config.log
        # Those during training are files of steps, of which only the newest may be kept.
        of_step = f"_{step:06d}" if phase == "during" else ""
        keep = log.max_rollout_files if of_step else 0
        for forced, rollouts in (("", result.rollouts), ("_forced", result.forced)):
            if log.rollouts and rollouts:
                rows = (rollout_record(r, f"{phase}{forced}", {}) for r in rollouts)
                name = f"eval_{phase}{forced}{of_step}"
                self.writer.write_rollouts(name, rows, compress=log.compress, keep=keep)
        if phase == "after" and self.session.workers.is_first:
            with suppress(DamagedError):  # a file that was damaged meanwhile: no such figure
                result.metrics.update(Run(self.writer.path).gains())
        played = (*result.rollouts, *result.forced)
        self.limit.ensure(played, where, f"eval_{phase}{of_step}")
        self.limit.ensure_paid(played, where)
        self.log(step, result.metrics, phase)
        self.observer.evaluation(phase, step, result.metrics)

    def play(
        self, worlds: Sequence[TaskWorld], settings: EvalConfig, step: int, label: str = ""
    ) -> EvalResult:
        """Play an evaluation with the weights as they are; `label` is shown behind its phases."""
        policy = self.session.policy
        with policy.gathered(), TRACER.start_as_current_span(f"evaluate{label}"):
            self.evaluator.sync(policy)
            return evaluate_both(
                worlds,
                self.evaluator,
                settings,
                seed=self.session.seed,
                step=step,
                on_phase=lambda name, *counts: self.observer.phase(f"{name}{label}", *counts),
                should_stop=self.stop,
            )

    def evaluate(self, label: str, step: int) -> Metrics:
        """The full evaluation on `eval.split`, recorded; one that is recorded is not made again."""
        session, workers = self.session, self.session.workers
        recorded = Run(self.writer.path).measured(label, step) if workers.is_first else None
        if (metrics := workers.gather(recorded)[0]) is not None:
            return metrics
        result = self.play(session.worlds, session.config.eval, step, f" ({label})")
        self.record(result, label, step, f"the evaluation {label} (step {step})")
        for note in find_remarks(result.rollouts) if label == "before" else ():
            self.observer.note(note)
        return result.metrics

    def save(self) -> int:
        """Write the checkpoint of the last finished step, in one process; returns its number.

        RuntimeError if a step was broken off half-way, so that its weights are of no step at all,
        or is not recorded: it would be counted and never be done again.
        """
        session, workers = self.session, self.session.workers
        if session.learner.is_halfway:
            raise RuntimeError("the update that was broken off had changed weights already")
        if self.unrecorded:
            raise RuntimeError(
                f"step {self.unrecorded} is not recorded, so its weights are not kept either"
            )
        path, state = self.writer.path, dict(vars(self.progress))
        state["searches"] = count_searches(self.progress.searches)
        settings, is_sharded = session.config.checkpoint, session.policy.is_sharded
        agreed = Interrupted | AlarmStop | BudgetSpent | FailureLimitError | None
        if is_sharded and not isinstance(sys.exception(), agreed):
            raise RuntimeError("weights are sharded, and other processes do not save their part")
        if workers.is_first or is_sharded:
            with workers.in_lockstep() if is_sharded else nullcontext():
                save_checkpoint(path, session.policy, session.learner, state)
        if workers.is_first:
            best = state.get("best") if settings.keep_best else None
            kept = f"step_{best['step']:06d}" if best else None
            rotate_checkpoints(path, settings.keep_last, kept)
        return int(state["step"])

    def finish(self, **facts: Any) -> dict[str, Any]:
        """Write the policy, evaluate, write `summary.json` with `facts` and return that."""
        session, path, step = self.session, self.writer.path, self.progress.step
        if session.workers.is_first or session.policy.is_sharded:
            save_policy(path, session.policy)
        after = self.evaluate("after", step)
        searches = count_searches(self.progress.searches)
        for line in describe_searches(searches):
            self.observer.note(line)
        summary = {
            "env": [task.env.name for task in session.config.tasks],
            "model": session.policy.source,
            "seed": session.seed,
            "steps": step,
            "fingerprint": session.config.fingerprint,
            "headline": find_headline(session.worlds),
            **facts,
            "after": summary_metrics(after, session.worlds),
            **({"searches": searches} if searches else {}),
            "policy": str(path / "policy"),
            **ask_line(path, session.worlds),
        }
        self.writer.write_summary(summary)
        return summary


def run_training(
    kind: type[TrainingRun],
    config: RunConfig | Plan | Mapping[str, Any] | None,
    resume: str | Path | None,
    observer: Observer | None,
    quiet: bool,
    registry: Registry | None,
    trust: bool | Permission,
    allow_change: bool,
) -> Run:
    """Begin or resume a run and take its steps to the end; see `train`."""
    config, objects = take_objects(config)
    begin_counting()
    workers = Workers(read_place())
    shown = observer if workers.is_first else Observer()
    with make_observer(shown, quiet=quiet) as observer:
        if resume is not None and (end := Run.open(resume).find_end()):
            observer.last_words(end)
            return Run(Path(resume))
        note = observer.note
        plan, registry = prepare(
            kind.program,
            config,
            resume=resume,
            registry=registry,
            on_note=note,
            trust=trust,
            objects=objects,
        )
        with workers.joined(plan.device), catching_signals() as stop, ExitStack() as stack:
            folder, old = None, None if resume is None else Path(resume)
            if workers.is_first:
                folder = old or choose_folder(plan.config)
                stack.enter_context(holding(folder))
            workers.barrier()  # no process loads weights if the folder cannot be used
            session = kind.makes(plan, registry, workers, note, observer.phase)
            stack.callback(session.close)
            run = kind(session, observer, stop)
            run.open(folder, old, allow_change=allow_change)
            path = run.writer.path
            is_tracked = workers.is_first and kind.program == "train"
            names = plan.config.log.trackers if is_tracked else ()
            with (
                Trackers(registry, names, path) as run.trackers,
                keeping_finished(run.command, path, run.save, observer.last_words),
                TRACER.start_as_current_span(f"run {path.name}"),
            ):
                summary = run.run()
        observer.done(path, summary)
        return Run(path)
