"""The common part of `train` and `sft`: a run begins or is resumed, is recorded, and ends.

The steps are those of the programs. Changes since a run began are found by `run_folder.changes`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal

from searchrl.config import RunConfig
from searchrl.config.sections import EvalConfig
from searchrl.engine.learning.checkpoint import load_checkpoint, save_checkpoint, save_policy
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.supervised import SupervisedLearner
from searchrl.engine.learning.workers import ALONE, Workers
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
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.rollout import Interrupted, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.errors import AlarmStop, BudgetSpent, FailureLimitError
from searchrl.plugins import Registry
from searchrl.programs.agent import ask_line
from searchrl.programs.stopping import StopFlag
from searchrl.run_folder import Run, RunWriter, newest_checkpoint, rotate_checkpoints
from searchrl.run_folder.changes import describe_sources, ensure_unchanged
from searchrl.screen.observer import Observer
from searchrl.trust.permission import trust_created


class TrainingRun:
    """A run that is under way: what it holds, where it writes, how far it has come."""

    program: ClassVar[Literal["train", "sft"]]
    progress: Any
    """A `Shape` with a `step`: what checkpoints hold beside weights and optimiser."""
    writer: RunWriter

    def __init__(
        self,
        config: RunConfig,
        registry: Registry,
        worlds: Sequence[TaskWorld],
        policy: Policy,
        learner: Learner | SupervisedLearner,
        evaluator: RolloutDriver,
        observer: Observer,
        stop: StopFlag,
        workers: Workers = ALONE,
    ) -> None:
        self.config, self.registry, self.worlds = config, registry, worlds
        self.policy, self.learner, self.evaluator = policy, learner, evaluator
        self.observer, self.stop, self.workers = observer, stop, workers
        self.num_tasks = count_tasks(worlds, config.eval)
        self.unrecorded = 0
        """A step that has begun to change weights and is not on disk yet."""

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

    def open(
        self, folder: Path | None, resume: Path | None, steps: int, *, allow_change: bool
    ) -> None:
        """Make the run folder, or go back to the newest whole checkpoint of an old one.

        `folder` is that of a new run, None in all processes but the first. ChangedError if
        something has changed since the run began, DamagedError if no checkpoint is whole.
        """
        if resume is None:
            self._begin(folder, steps)
        else:
            self._reopen(resume, steps, allow_change)
        self.limit = FailureLimit(
            "training" if self.program == "train" else "the cold start",
            self.config.rollout.max_failure_frac,
            self.writer.write_failure,
            self.observer.note,
            f"Fix it, then continue with: searchrl {self.program} --resume {self.writer.path}",
        )

    def _begin(self, folder: Path | None, steps: int) -> None:
        notes, observer = [*self.notes()], self.observer  # a judge without a key is refused
        # The first process makes the folder; the others only have to know where it is.
        own = None if folder is None else RunWriter.create(self.config, folder)
        path = self.workers.gather(folder)[0]
        assert path is not None
        self.writer = own or RunWriter(path, is_silent=True)
        self._record_origin()
        observer.begin(steps)
        if note := trust_created(self.config, self.registry, path):
            observer.warn(note)
        observer.plan(self.config, self.facts())
        for text in self.warnings():
            observer.warn(text)
        for text in notes:
            observer.note(text)

    def _reopen(self, folder: Path, steps: int, allow_change: bool) -> None:
        observer, run = self.observer, Run(folder)
        changed = ensure_unchanged(
            run, self.config, self.registry, self.num_tasks, allow=allow_change
        )
        newest = newest_checkpoint(folder)
        for fault in newest.notes:
            observer.warn(fault)
        state = load_checkpoint(newest.folder, self.policy, self.learner, type(self.progress))
        self.progress = type(self.progress)(**state)
        self.writer = RunWriter.reopen(
            folder,
            self.progress.step,
            evaluated=state.get("evaluated"),
            on_note=observer.warn,
            is_silent=not self.workers.is_first,
        )
        if not self.writer.has_provenance:
            self._record_origin()
        self.writer.update_provenance(**changed)
        observer.begin(steps, self.progress.step, run.read_metrics().rows)
        observer.note(f"resumed {folder} after step {self.progress.step}")
        for text in self.notes():
            observer.note(text)

    def _record_origin(self) -> None:
        trainable, total = self.policy.num_parameters
        self.writer.write_provenance(
            self.registry.provenance(),
            program=self.program,
            machine=describe_machine(self.policy.device),
            seed=self.config.seed,
            fingerprint=self.config.fingerprint,
            model=self.policy.source,
            device=str(self.policy.device),
            trainable_parameters=trainable,
            parameters=total,
            **self.origin(),
            **describe_sources(self.config, self.num_tasks),
        )

    def log(self, step: int, metrics: Metrics, phase: str) -> None:
        """Record the metrics of a training step or an evaluation."""
        self.writer.log(step, metrics, phase)

    def record(self, result: EvalResult, phase: str, step: int, where: str) -> None:
        """Write the episodes of an evaluation and, unless too many failed, its figures."""
        log = self.config.log
        # Those during training are files of steps, of which only the newest may be kept.
        of_step = f"_{step:06d}" if phase == "during" else ""
        keep = log.max_rollout_files if of_step else 0
        for forced, rollouts in (("", result.rollouts), ("_forced", result.forced)):
            if log.rollouts and rollouts:
                rows = (rollout_record(r, f"{phase}{forced}", {}) for r in rollouts)
                name = f"eval_{phase}{forced}{of_step}"
                self.writer.write_rollouts(name, rows, compress=log.compress, keep=keep)
        self.limit.ensure((*result.rollouts, *result.forced), where, f"eval_{phase}{of_step}")
        self.log(step, result.metrics, phase)
        self.observer.evaluation(phase, step, result.metrics)

    def play(
        self, worlds: Sequence[TaskWorld], settings: EvalConfig, step: int, label: str = ""
    ) -> EvalResult:
        """Play an evaluation with the weights as they are; `label` is shown behind its phases."""
        with self.policy.gathered():
            self.evaluator.sync(self.policy)
            return evaluate_both(
                worlds,
                self.evaluator,
                settings,
                seed=self.config.seed,
                step=step,
                on_phase=lambda name, *counts: self.observer.phase(f"{name}{label}", *counts),
                should_stop=self.stop,
            )

    def evaluate(self, label: str, step: int) -> Metrics:
        """The full evaluation on `eval.split`, recorded; one that is recorded is not made again."""
        recorded = Run(self.writer.path).measured(label, step) if self.workers.is_first else None
        if (metrics := self.workers.gather(recorded)[0]) is not None:
            return metrics
        result = self.play(self.worlds, self.config.eval, step, f" ({label})")
        self.record(result, label, step, f"the evaluation {label} (step {step})")
        for note in find_remarks(result.rollouts) if label == "before" else ():
            self.observer.note(note)
        return result.metrics

    def save(self) -> int:
        """Write the checkpoint of the last finished step, in one process; returns its number.

        RuntimeError if a step was broken off half-way, so that its weights are of no step at all,
        or is not recorded: it would be counted and never be done again.
        """
        if isinstance(self.learner, Learner) and self.learner.is_halfway:
            raise RuntimeError("the update that was broken off had changed weights already")
        if self.unrecorded:
            raise RuntimeError(
                f"step {self.unrecorded} is not recorded, so its weights are not kept either"
            )
        path, settings, state = self.writer.path, self.config.checkpoint, dict(vars(self.progress))
        is_writer, is_sharded = self.workers.is_first, self.policy.is_sharded
        agreed = Interrupted | AlarmStop | BudgetSpent | FailureLimitError | None
        if is_sharded and not isinstance(sys.exception(), agreed):
            raise RuntimeError("weights are sharded, and other processes do not save their part")
        if is_writer or is_sharded:
            with self.workers.in_lockstep() if is_sharded else nullcontext():
                save_checkpoint(path, self.policy, self.learner, state)
        if is_writer:
            best = state.get("best") if settings.keep_best else None
            kept = f"step_{best['step']:06d}" if best else None
            rotate_checkpoints(path, settings.keep_last, kept)
        return int(state["step"])

    def finish(self, **facts: Any) -> dict[str, Any]:
        """Write the policy, evaluate, write `summary.json` with `facts` and return that."""
        config, path, step = self.config, self.writer.path, self.progress.step
        if self.workers.is_first or self.policy.is_sharded:
            save_policy(path, self.policy)
        after = self.evaluate("after", step)
        summary = {
            "env": [task.env.name for task in config.tasks],
            "model": self.policy.source,
            "seed": config.seed,
            "steps": step,
            "fingerprint": config.fingerprint,
            "headline": find_headline(self.worlds),
            **facts,
            "after": summary_metrics(after, self.worlds),
            "policy": str(path / "policy"),
            **ask_line(path, self.worlds),
        }
        self.writer.write_summary(summary)
        return summary
