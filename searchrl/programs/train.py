"""The training loop, readable top to bottom: sample, score, update, record, evaluate.

Owns the order of things and nothing else: rollouts, scoring, the loss and checkpoints live below.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import Field, NonNegativeInt

from searchrl.config import RunConfig
from searchrl.engine.checks.report import State
from searchrl.engine.learning.step_groups import sampler_metrics, staleness, update_metrics
from searchrl.engine.memory.forecast import tell_peak
from searchrl.engine.metrics.evaluation import summary_metrics
from searchrl.engine.metrics.metrics import Metrics, curriculum_metrics, summarise
from searchrl.engine.metrics.remarks import find_forks
from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.rollout import Interrupted
from searchrl.envs.splits import VALIDATION
from searchrl.plugins import Registry
from searchrl.programs.alarms import AlarmDesk, Best, Rollback
from searchrl.programs.setup.audit import foresee_faults
from searchrl.programs.setup.judge_cost import describe_spent, foresee_training
from searchrl.programs.setup.planning import Plan
from searchrl.programs.setup.session import Session
from searchrl.programs.setup.warnings import (
    note_turn_scores,
    training_warnings,
    unready_policy,
)
from searchrl.programs.stopping import StopFlag
from searchrl.programs.training_run import TrainingRun, run_training
from searchrl.run_folder import Run
from searchrl.run_folder.shapes import Shape
from searchrl.screen.observer import Observer
from searchrl.statistics import exact, finite_figures
from searchrl.tracing import TRACER
from searchrl.trust.permission import Permission


def train(
    config: RunConfig | Plan | Mapping[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
    registry: Registry | None = None,
    trust: bool | Permission = False,
    allow_change: bool = False,
) -> Run:
    """Train a policy and return its run folder.

    Args:
        config: a resolved `RunConfig` or `Plan`, or settings such as `{"env": "regulations"}`.
            Settings may hold objects: as `env` a class of `gymnasium.Env`, as `reward` a function
            of an episode or a list of functions and expressions, as `questions` and
            `test_questions` rows (a list, or a `datasets.Dataset`), as `functions` those that an
            expression names. Only these objects are taken with `resume`, which has the settings of
            the run.
        resume: a run folder to continue from its newest checkpoint. A finished run is returned as
            it is, and `observer` is told.
        observer: told of everything that happens; by default the display of the command.
        quiet: without an `observer`, show nothing.
        registry: loaded plugins; by default the installed ones and `config.plugins`.
        trust: allow the code that a run folder names (`resume`, `init_from`), this once; or what
            may be used of it.
        allow_change: with `resume`, go on though data, an environment or a plugin has changed.

    >>> def brevity(episode):
    ...     return 1 / (1 + episode.num_model_tokens)
    >>> settings = {"env": "regulations", "reward": ["em", brevity]}
    >>> run = searchrl.train(settings)  # doctest: +SKIP

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
    return run_training(_Training, config, resume, observer, quiet, registry, trust, allow_change)


class _Progress(Shape, extra="forbid", allow_inf_nan=False):
    """Contents of checkpoints beside weights and optimiser.

    `best` is the step with the best reward on validation tasks so far; `evaluated` the last step
    after which that was looked at; `watched` the last one that the alarms were asked about.
    """

    step: NonNegativeInt = 0
    before: Metrics | None = None
    best: Best | None = None
    evaluated: NonNegativeInt = 0
    watched: NonNegativeInt = 0
    rollbacks: list[Rollback] = Field(default_factory=list)
    sampled_tokens: NonNegativeInt = 0
    episodes: NonNegativeInt = 0
    searches: dict[str, dict[str, float]] = Field(default_factory=dict)


class _Training(TrainingRun):
    program = "train"
    makes = Session
    session: Session
    progress: _Progress

    def __init__(self, session: Session, observer: Observer, stop: StopFlag) -> None:
        report = session.examine(is_thorough=False)
        report.ensure_good()
        for one in report.of(State.WARNED):
            observer.warn(f"check '{one.name}': {one.says}. {one.fix}")
        observer.note(f"start-up checks: {report.summary}")
        super().__init__(session, observer, stop)
        self.progress, self.num_steps = _Progress(), session.config.max_steps
        self.said_forks: list[str] = []

    def origin(self) -> dict[str, Any]:
        """The algorithm, with all its settings."""
        loss = asdict(self.session.learner.loss_settings)
        return {"algorithm": {"name": self.session.config.algorithm.name, **loss}}

    def facts(self) -> dict[str, Any]:
        """The plan, as it is shown before the first step."""
        session, config, learner = self.session, self.session.config, self.session.learner
        (trainable, total), rollout = session.policy.num_parameters, config.rollout
        return {
            "splits": ", ".join(f"{name} {count:,}" for name, count in self.num_tasks.items()),
            "model": session.plan.model.label,
            "device": str(session.policy.device),
            "parameters": f"{total:,} ({trainable:,} trained)",
            "run": str(self.writer.path),
            "algorithm": (
                f"{config.algorithm.name}, {config.max_steps} steps of "
                f"{rollout.prompts_per_step} prompts × {rollout.group_size} "
                f"rollouts, lr {config.optim.lr:g}, {learner.loss_settings.describe()}"
            ),
            **({"curriculum": text} if (text := str(session.curriculum)) else {}),
            "update": learner.describe(),
            "memory": session.memory,
        }

    def warnings(self) -> Iterator[str]:
        """Yield what makes the run hopeless or its figures worthless."""
        return training_warnings(self.session.plan, self.session.worlds)

    def notes(self) -> Iterator[str]:
        """Yield what judges will cost, and what an audit of a new run's questions says."""
        session, step = self.session, self.progress.step
        yield from foresee_training(session.config, session.worlds, step)
        yield from () if step else foresee_faults(session.worlds)

    def open(self, folder: Path | None, resume: Path | None, *, allow_change: bool) -> None:
        """As `TrainingRun.open`; the alarms watch, and a new run has its first checkpoint."""
        super().open(folder, resume, allow_change=allow_change)
        done = self.progress
        self.alarms = AlarmDesk(
            self.session, self.writer, self.observer, done.watched, done.rollbacks
        )
        if resume is None:
            self.checkpoint()  # from here on the run can be resumed

    def run(self) -> dict[str, Any]:
        """The evaluation before, steps to the last one, the evaluation after and the summary."""
        session, progress, observer = self.session, self.progress, self.observer
        if progress.before is None:
            # What everything later is compared with; part of checkpoint 0.
            progress.before = self.evaluate("before", 0)
            for text in unready_policy(session.config, session.worlds, progress.before):
                observer.warn(text)
            self.checkpoint()
        self.bound()
        self.finish_step()  # what a kill left undone
        while (step := progress.step + 1) <= self.num_steps:
            with TRACER.start_as_current_span(f"step {step}"):
                metrics = self.train_step(step)
            self.bound()
            self.trackers.log(step, metrics, "train")
            observer.step(step, self.num_steps, metrics)
            self.finish_step()
            if session.workers.agree_to_stop(self.stop.is_requested):
                raise Interrupted
        assert progress.before is not None
        run = Run(self.writer.path)
        summary = self.finish(
            reward=[str(world.scorer.schedule) for world in session.worlds],
            before=summary_metrics(progress.before, session.worlds),
            best=progress.best,
            alarms=run.alarms,
        )
        tell_peak(session.memory, session.policy.device, observer.note)
        for line in describe_spent(session.worlds):
            observer.note(line)
        observer.compare(run.rollouts("before"), run.rollouts("after"))
        return summary

    def bound(self) -> None:
        """Let the last step be the one in which a budget of the config was reached, if it was."""
        config, progress = self.session.config, self.progress
        spent = (
            (progress.sampled_tokens, config.max_sampled_tokens),
            (progress.episodes, config.max_episodes),
        )
        if any(most is not None and number >= most for number, most in spent):
            self.num_steps = progress.step

    def finish_step(self) -> None:
        """Validate, ask the alarms and save, each if it is due after the last step."""
        self.validate()
        progress, step = self.progress, self.progress.step
        if progress.watched < step:  # the alarms are asked once about a step
            progress.watched = step
            if self.alarms.heed(step, progress.best):
                self.checkpoint()  # with the weights that a rollback put back
        if step % self.session.config.checkpoint.every == 0 or step == self.num_steps:
            self.checkpoint()

    def train_step(self, step: int) -> Metrics:
        """Sample groups, update once, record every trajectory and the metrics; returns these.

        The step counts once both are on disk, and not before.
        """
        session, config, observer = self.session, self.session.config, self.observer
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
        if step == 1 and (note := note_turn_scores(session.algorithm, rollouts)):
            observer.note(note)
        if not self.said_forks:
            self.said_forks = find_forks(rollouts)
            for note in self.said_forks:
                observer.note(note)
        observer.phase("update", 0, 1)
        version = session.policy.version
        with TRACER.start_as_current_span("update"):
            learned = session.update(drawn, step, self.stop)
        self.unrecorded = step
        updated = time.perf_counter()
        if config.log.rollouts:
            every = (*rollouts, *session.added)
            rows = (rollout_record(r, "train", learned.tokens) for r in every)
            name, keep = f"step_{step:06d}", config.log.max_rollout_files
            self.writer.write_rollouts(name, rows, compress=config.log.compress, keep=keep)
        metrics = summarise(rollouts, session.worlds)
        metrics |= update_metrics(
            learned.metrics,
            drawn,
            session.algorithm.length_penalty_of(config.rollout.max_total_tokens),
            session.algorithm.max_refills,
            config.rollout.max_total_tokens,
        )
        if config.scale.max_staleness:
            metrics["staleness"] = staleness(drawn, version)
        if config.rollout.step_timeout_s is not None:
            metrics["late_rollouts"] = exact(drawn.num_late)
        metrics |= sampler_metrics(session.sampler, session.workers)
        figures = finite_figures(session.algorithm.hooks.metrics())
        metrics |= {name: exact(value) for name, value in figures.items()}
        metrics |= self.alarms.count()
        metrics["sample_s"] = exact(sampled - started)
        metrics["update_s"] = exact(updated - sampled)
        model_tokens = sum(r.episode.num_model_tokens for r in rollouts)
        metrics["tokens_per_s"] = exact(model_tokens / max(updated - started, 1e-9))
        metrics |= curriculum_metrics(session.curriculum, step - 1)
        metrics["sampled_tokens"] = exact(self.progress.sampled_tokens + model_tokens)
        self.log(step, metrics, "train")
        self.progress.sampled_tokens += model_tokens
        self.progress.episodes += len(rollouts)
        self.progress.step, self.unrecorded = step, 0
        return metrics

    def validate(self) -> None:
        """A short evaluation if one is due at this step; remembers the best checkpoint by reward.

        It plays validation tasks: what chooses a checkpoint can no longer measure it.
        """
        config, progress, step = self.session.config, self.progress, self.progress.step
        worlds = [world for world in self.session.worlds if world.can_validate]
        every = config.eval.every
        is_due = every and worlds and (step % every == 0 or step == self.num_steps)
        if not is_due or progress.evaluated == step:
            return
        short = {"split": VALIDATION, "num_tasks": config.eval.num_tasks_during}
        result = self.play(worlds, config.eval.model_copy(update=short), step)
        self.record(result, "during", step, f"the evaluation during training (step {step})")
        # Until here a resumed run begins with this evaluation.
        progress.evaluated = step
        reward, best = result.metrics.get("reward"), progress.best
        if reward is not None and (best is None or reward["value"] > best["reward"]["value"]):
            progress.best = {"step": step, "reward": reward}
        self.trackers.log(step, result.metrics, "eval")
        if progress.best is not best:
            self.checkpoint()

    def log(self, step: int, metrics: Metrics, phase: str) -> None:
        """Record metrics; the alarms see them, too."""
        super().log(step, metrics, phase)
        self.alarms.watch.history.add(step, phase, metrics)

    def checkpoint(self) -> None:
        """Save, and show that it is being done."""
        self.observer.phase("checkpoint", 0, 1)
        self.save()
