"""The training loop, readable top to bottom: sample, score, update, record, evaluate.

Owns the order of things and nothing else: rollouts, scoring, the loss and checkpoints live below.
Ctrl-C and errors, whoever raises them, lose no finished step. A kill, or a disk too full for a
checkpoint, loses what came after the last one. `resume` continues exactly.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from searchrl.alarms.watch import find_alarms
from searchrl.config import RunConfig
from searchrl.engine.learning.checkpoint import save_checkpoint, save_policy
from searchrl.engine.learning.step_groups import sampler_metrics, update_metrics
from searchrl.engine.learning.torchrun import read_place
from searchrl.engine.learning.workers import Workers
from searchrl.engine.memory.forecast import tell_peak
from searchrl.engine.metrics.evaluation import (
    EvalResult,
    evaluate_both,
    summary_metrics,
)
from searchrl.engine.metrics.failures import FailureLimit
from searchrl.engine.metrics.metrics import Metrics, curriculum_metrics, find_headline, summarise
from searchrl.engine.metrics.remarks import find_remarks
from searchrl.engine.rollout.playing import Interrupted, Rollout
from searchrl.engine.rollout.records import rollout_record
from searchrl.envs.splits import VALIDATION
from searchrl.plugins import Registry
from searchrl.programs.agent import ask_line
from searchrl.programs.alarms import AlarmDesk
from searchrl.programs.doctor import ensure_sound
from searchrl.programs.observer import Observer, SilentObserver
from searchrl.programs.opening import begin_run, reopen_run
from searchrl.programs.progress import Progress
from searchrl.programs.setup.judging import describe_spent
from searchrl.programs.setup.planning import Plan, find_plan
from searchrl.programs.setup.session import Session
from searchrl.programs.stopping import StopFlag, catching_signals, ensure_recorded, keeping_finished
from searchrl.run_folder import (
    Run,
    RunWriter,
    choose_folder,
    holding,
    rotate_checkpoints,
)
from searchrl.statistics import exact
from searchrl.trackers.feed import Trackers


def train(
    config: RunConfig | Plan | Mapping[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    registry: Registry | None = None,
    trust: bool = False,
    allow_change: bool = False,
) -> Run:
    """Train a policy and return its run folder.

    Args:
        config: a resolved `RunConfig` or `Plan`, or settings such as `{"env": "regulations"}`;
            ignored with `resume`, which takes the run's own.
        resume: a run folder to continue from its newest checkpoint. A finished run is returned as
            it is, and `observer` is told.
        observer: told of everything that happens.
        registry: loaded plugins; by default the installed ones and `config.plugins`.
        trust: allow the code that a run folder names (`resume`, `init_from`), this once.
        allow_change: with `resume`, go on though data, an environment or a plugin has changed.

    Raises:
        SearchRLError: for anything a user can fix (names, data, weights, disk, plugins).
        ChangedError: if something has changed since the run began and that is not allowed.
        RunInUseError: if another process works on the run folder.
        KeyboardInterrupt: after Ctrl-C, with a checkpoint written; after SIGTERM and SIGHUP it is
            a `Stopped`.

    Whatever is raised once the run has begun, a checkpoint of the last finished step is written
    first and the observer is told how to go on. Under torchrun the processes share the work; the
    first one writes and is the one with an observer.
    """
    workers = Workers(read_place())
    if observer is None or not workers.is_first:
        observer = SilentObserver()
    if resume is not None and (end := Run.open(resume).find_end()):
        observer.last_words(end)
        return Run(Path(resume))
    plan, registry = find_plan("train", config, resume, registry, observer.note, trust=trust)
    all_trackers = plan.config.log.trackers
    for spec in all_trackers:
        registry.get("tracker", spec.name).ensure_settings(spec.settings)
    find_alarms(registry, plan.config.alarms.watch)
    with (
        workers.joined(plan.device),
        catching_signals() as stop,
        ExitStack() as stack,
    ):
        folder = None
        if workers.is_first:
            folder = choose_folder(plan.config) if resume is None else Path(resume)
            stack.enter_context(holding(folder))
        workers.barrier()  # no process loads weights if the folder cannot be used
        session = Session(plan, registry, workers, observer.note, observer.phase)
        stack.callback(session.close)
        ensure_sound(session, observer)
        if resume is None:
            opened = begin_run(session, observer, folder)
        else:
            opened = reopen_run(session, observer, Path(resume), allow_change=allow_change)
        training = _Training(session, observer, stop, *opened)
        if resume is None:
            training.checkpoint()  # from here on the run can be resumed
        path = training.writer.path
        with (
            Trackers(registry, all_trackers if workers.is_first else (), path) as trackers,
            keeping_finished("train", path, training.save, observer.last_words),
        ):
            summary = training.run(trackers)
    run = Run(path)
    observer.compare(run.rollouts("before"), run.rollouts("after"))
    observer.done(path, summary)
    return run


@dataclass
class _Training:
    """A run that is under way: what it holds, where it writes, how far it has come."""

    session: Session
    observer: Observer
    stop: StopFlag
    writer: RunWriter
    progress: Progress

    def __post_init__(self) -> None:
        self.config = self.session.config
        done = self.progress
        self.alarms = AlarmDesk(
            self.session, self.writer, self.observer, done.watched, done.rollbacks
        )
        self.has_told_unread = False
        self.unrecorded = 0
        self.evaluator = self.session.make_driver(self.config.eval, lambda text: None)
        self.limit = FailureLimit(
            "training",
            self.config.rollout.max_failure_frac,
            self.writer.write_failure,
            self.observer.note,
            f"Fix it, then continue with: searchrl train --resume {self.writer.path}",
        )

    def run(self, trackers: Trackers) -> dict[str, Any]:
        """The evaluation before, steps until `max_steps`, the evaluation after and the summary."""
        config, progress, workers = self.config, self.progress, self.session.workers
        if progress.before is None:
            # What everything later is compared with; part of checkpoint 0.
            progress.before = self.evaluate("before", 0)
            self.checkpoint()
        self.finish_step(trackers)  # what a kill left undone
        for step in range(progress.step + 1, config.max_steps + 1):
            metrics = self.train_step(step)
            trackers.log(step, metrics, "train")
            self.observer.step(step, config.max_steps, metrics)
            self.finish_step(trackers)
            if workers.agree_to_stop(self.stop.asked):
                raise Interrupted
        after = self.evaluate("after", config.max_steps)
        if workers.is_first:
            save_policy(self.writer.path, self.session.policy)
        summary = self.summary(after)
        tell_peak(self.session.memory, self.session.policy.device, self.observer.note)
        for line in describe_spent(self.session.worlds):
            self.observer.note(line)
        self.writer.write_summary(summary)
        return summary

    def finish_step(self, trackers: Trackers) -> None:
        """Validate, ask the alarms and save, each if it is due after the last step."""
        self.validate(trackers)
        self.heed_alarms()
        step = self.progress.step
        if step % self.config.checkpoint.every == 0 or step == self.config.max_steps:
            self.checkpoint()

    def train_step(self, step: int) -> Metrics:
        """Sample groups, update once, record every trajectory and the metrics; returns these.

        The step counts once both are on disk, and not before.
        """
        session, config, observer = self.session, self.config, self.observer
        started = time.perf_counter()
        drawn = session.sample(
            step,
            on_progress=lambda done, total: observer.phase("sample", done, total),
            should_stop=self.stop,
        )
        sampled = time.perf_counter()
        rollouts = drawn.rollouts
        self.limit.ensure(rollouts, f"step {step}", f"step_{step:06d}")
        self.limit.ensure_paid(rollouts, f"step {step}")
        self.limit.ensure_scored(rollouts, f"step {step}")
        self.tell_unread(rollouts)
        observer.phase("update", 0, 1)
        learned = session.update(drawn, step)
        self.unrecorded = step
        updated = time.perf_counter()
        if config.log.rollouts:
            self.writer.write_rollouts(
                f"step_{step:06d}",
                (
                    rollout_record(
                        r,
                        "train",
                        learned.tokens.get(r.trajectory.rollout_id),
                    )
                    for r in rollouts
                ),
                compress=config.log.compress,
                keep=config.log.max_rollout_files,
            )
        metrics = summarise(rollouts, session.worlds)
        metrics |= update_metrics(
            learned.metrics,
            drawn,
            session.learner.length_penalty,
            session.algorithm.max_refills,
            config.rollout.max_total_tokens,
        )
        metrics |= sampler_metrics(session.sampler, session.workers)
        metrics |= self.alarms.count()
        metrics["sample_s"] = exact(sampled - started)
        metrics["update_s"] = exact(updated - sampled)
        model_tokens = sum(r.episode.num_model_tokens for r in rollouts)
        metrics["tokens_per_s"] = exact(model_tokens / max(updated - started, 1e-9))
        metrics |= curriculum_metrics(session.curriculum, step - 1)
        self.alarms.log(step, metrics, "train")
        self.progress.step, self.unrecorded = step, 0
        observer.episodes(rollouts)
        return metrics

    def tell_unread(self, rollouts: Sequence[Rollout]) -> None:
        """Say once that a reward gives scores per turn which the algorithm does not read."""
        if self.has_told_unread or self.session.algorithm.reads_turn_scores:
            return
        named = dict.fromkeys(name for r in rollouts if r.turn_scores for name in r.scored.per_turn)
        if named:
            self.has_told_unread = True
            self.observer.note(
                f"reward {' and '.join(map(repr, named))} gives a score per turn, and algorithm "
                f"'{self.config.algorithm.name}' reads none of them: it compares whole rollouts by "
                "their reward. An algorithm that reads step.turn_scores is a few lines: "
                "docs/hooks.md, register_algorithms"
            )

    def evaluate(self, label: str, step: int) -> Metrics:
        """The full evaluation on `eval.split`, recorded; one that is recorded is not made again."""
        workers = self.session.workers
        recorded = Run(self.writer.path).measured(label, step) if workers.is_first else None
        if (metrics := workers.gather(recorded)[0]) is not None:
            return metrics
        self.evaluator.sync(self.session.policy)
        result = evaluate_both(
            self.session.worlds,
            self.evaluator,
            self.config.eval,
            seed=self.config.seed,
            step=step,
            on_phase=lambda name, done, total: self.observer.phase(
                f"{name} ({label})", done, total
            ),
            should_stop=self.stop,
        )
        self.record(result, label, step, f"the evaluation {label} (step {step})")
        for note in find_remarks(result.rollouts) if label == "before" else ():
            self.observer.note(note)
        self.observer.evaluation(label, step, result.metrics)
        return result.metrics

    def validate(self, trackers: Trackers) -> None:
        """A short evaluation if one is due at this step; remembers the best checkpoint by reward.

        It plays validation tasks: what chooses a checkpoint can no longer measure it.
        """
        config, progress, step = self.config, self.progress, self.progress.step
        worlds = [world for world in self.session.worlds if world.can_validate]
        every = config.eval.every
        is_due = every and worlds and (step % every == 0 or step == config.max_steps)
        if not is_due or progress.evaluated == step:
            return
        self.evaluator.sync(self.session.policy)
        short = {"split": VALIDATION, "num_tasks": config.eval.num_tasks_during}
        result = evaluate_both(
            worlds,
            self.evaluator,
            config.eval.model_copy(update=short),
            seed=config.seed,
            step=step,
            on_phase=self.observer.phase,
            should_stop=self.stop,
        )
        self.record(result, "during", step, f"the evaluation during training (step {step})")
        # Until here a resumed run begins with this evaluation.
        progress.evaluated = step
        reward, best = result.metrics.get("reward"), progress.best
        is_best = reward is not None and (best is None or reward["value"] > best["reward"]["value"])
        if is_best:
            progress.best = {"step": step, "reward": reward}
        trackers.log(step, result.metrics, "eval")
        self.observer.evaluation("during", step, result.metrics)
        if is_best:
            self.checkpoint()

    def record(self, result: EvalResult, phase: str, step: int, where: str) -> None:
        """Write the episodes of an evaluation, look at its failures, log its figures.

        Raises:
            FailureLimitError: if too many episodes failed; nothing is logged then.
        """
        log = self.config.log
        # Those during training are files of steps, of which only the newest may be kept.
        of_step = f"_{step:06d}" if phase == "during" else ""
        keep = log.max_rollout_files if of_step else 0
        for forced, rollouts in (("", result.rollouts), ("_forced", result.forced)):
            if log.rollouts and rollouts:
                rows = (rollout_record(r, f"{phase}{forced}", None) for r in rollouts)
                name = f"eval_{phase}{forced}{of_step}"
                self.writer.write_rollouts(name, rows, compress=log.compress, keep=keep)
        name = f"eval_{phase}{of_step}"
        self.limit.ensure((*result.rollouts, *result.forced), where, name)
        self.alarms.log(step, result.metrics, phase)

    def heed_alarms(self) -> None:
        """Ask the alarms about the last step, once; after a rollback, keep the new weights."""
        progress = self.progress
        if progress.watched < progress.step:
            progress.watched = progress.step
            if self.alarms.heed(progress.step, progress.best):
                self.checkpoint()

    def checkpoint(self) -> None:
        """Save, and show that it is being done."""
        self.observer.phase("checkpoint", 0, 1)
        self.save()

    def save(self) -> int:
        """Write the checkpoint of the last finished step, in one process; returns its number.

        Raises:
            RuntimeError: if a step was broken off half-way: its weights are of no step at all. Or
                see `ensure_recorded`.
        """
        session, progress, settings = self.session, self.progress, self.config.checkpoint
        if session.learner.is_halfway:
            raise RuntimeError("the update that was broken off had changed weights already")
        ensure_recorded(self.unrecorded)
        if session.workers.is_first:
            save_checkpoint(self.writer.path, session.policy, session.learner, asdict(progress))
            best = progress.best if settings.keep_best else None
            kept = f"step_{best['step']:06d}" if best else None
            rotate_checkpoints(self.writer.path, settings.keep_last, kept)
        return progress.step

    def summary(self, after: Metrics) -> dict[str, Any]:
        """What `summary.json` holds."""
        config, path = self.config, self.writer.path
        assert self.progress.before is not None
        return {
            "env": [task.env.name for task in config.tasks],
            "reward": [str(world.scorer.schedule) for world in self.session.worlds],
            "model": self.session.policy.source,
            "seed": config.seed,
            "steps": config.max_steps,
            "fingerprint": config.fingerprint,
            "headline": find_headline(self.session.worlds),
            "before": summary_metrics(self.progress.before, self.session.worlds),
            "after": summary_metrics(after, self.session.worlds),
            "best": self.progress.best,
            "alarms": Run(path).alarms,
            "policy": str(path / "policy"),
            **ask_line(path, self.session.worlds),
        }
