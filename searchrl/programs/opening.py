"""How a training run begins, and how it goes on after it was stopped.

Owns what is recorded and shown before the first step, and the way back to the newest checkpoint.
Whether a run still rests on what it began with is `run_folder.changes`.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from searchrl.config import RunConfig
from searchrl.engine.learning.checkpoint import load_checkpoint
from searchrl.engine.memory.machine import describe_machine
from searchrl.programs.observer import Observer
from searchrl.programs.progress import Progress, ProgressShape, work_of
from searchrl.programs.setup.doubts import few_tasks, few_validation_tasks, tiny_abroad
from searchrl.programs.setup.judging import foresee_training
from searchrl.programs.setup.planning import first_advice
from searchrl.programs.setup.session import Session
from searchrl.run_folder import Run, RunWriter, newest_checkpoint
from searchrl.run_folder.changes import describe_sources, ensure_unchanged
from searchrl.trust.permission import trust_created


class Opened(NamedTuple):
    """A run folder that is open for writing, and how far its run has come."""

    writer: RunWriter
    progress: Progress


def reopen_run(
    session: Session, observer: Observer, run_dir: Path, *, allow_change: bool
) -> Opened:
    """Go back to the newest whole checkpoint of a run; later records are made again.

    Raises:
        ChangedError: if something has changed since the run began, without `allow_change`.
        DamagedError: if no checkpoint is whole.
    """
    changed = ensure_unchanged(
        Run(run_dir), session.config, session.registry, session.num_tasks, allow=allow_change
    )
    newest = newest_checkpoint(run_dir)
    for fault in newest.faults:
        observer.warn(fault)
    state = load_checkpoint(newest.folder, session.policy, session.learner, ProgressShape)
    progress = Progress(**state)
    session.learner.ensure_same_weights(f"resumed after step {progress.step}")
    writer = RunWriter.reopen(
        run_dir,
        progress.step,
        evaluated=progress.evaluated,
        on_note=observer.warn,
        is_silent=not session.workers.is_first,
    )
    if not writer.has_provenance:
        _record_origin(session, writer)
    writer.update_provenance(**changed)
    observer.begin(work_of(session, progress.step, Run(run_dir).read_metrics().rows))
    observer.note(f"resumed {run_dir} after step {progress.step}")
    for line in foresee_training(session.config, session.worlds, progress.step):
        observer.note(line)
    return Opened(writer, progress)


def _record_origin(session: Session, writer: RunWriter) -> None:
    """Write `provenance.json`: what this run is made with."""
    config, policy = session.config, session.policy
    trainable, total = policy.num_parameters
    writer.write_provenance(
        session.registry.provenance(),
        program="train",
        machine=describe_machine(policy.device),
        seed=config.seed,
        fingerprint=config.fingerprint,
        model=policy.source,
        device=str(policy.device),
        algorithm={"name": config.algorithm.name, **asdict(session.learner.loss_settings)},
        trainable_parameters=trainable,
        parameters=total,
        **describe_sources(config, session.num_tasks),
    )


def _updates(most: int) -> str:
    return "1 per step" if most == 1 else f"up to {most} per step"


def _checkpoints(config: RunConfig) -> str:
    """How often a checkpoint is written, in steps and in episodes."""
    every, rollout = config.checkpoint.every, config.rollout
    episodes = every * rollout.prompts_per_step * rollout.group_size
    steps = "step" if every == 1 else f"{every} steps"
    return f"every {steps}, {episodes:,} episodes; the last {config.checkpoint.keep_last} are kept"


def begin_run(session: Session, observer: Observer, folder: Path | None) -> Opened:
    """Record what is about to happen. Checkpoint 0, which the caller writes, makes it a run.

    `folder` is None in all processes but the first.
    """
    config, learner, policy = session.config, session.learner, session.policy
    judging = list(foresee_training(config, session.worlds))  # a judge without a key is refused
    learner.ensure_same_weights("at the start")
    # The first process makes the folder; the others only have to know where it is.
    own = None if folder is None else RunWriter.create(config, folder)
    path = session.workers.gather(folder)[0]
    assert path is not None
    writer = own or RunWriter(path, is_silent=True)
    _record_origin(session, writer)
    trainable, total = policy.num_parameters
    observer.begin(work_of(session, 0))
    if note := trust_created(config, session.registry, path):
        observer.warn(note)
    observer.plan(
        config,
        {
            "splits": ", ".join(f"{name} {count:,}" for name, count in session.num_tasks.items()),
            "model": session.plan.model.label,
            "device": str(policy.device),
            "parameters": f"{total:,} ({trainable:,} trained)",
            "run": str(path),
            "algorithm": (
                f"{config.algorithm.name}, {config.max_steps} steps of "
                f"{config.rollout.prompts_per_step} prompts × {config.rollout.group_size} "
                f"rollouts, lr {config.optim.lr:g}, {learner.loss_settings.describe()}"
            ),
            **({"curriculum": text} if (text := str(session.curriculum)) else {}),
            "update": learner.describe() if session.plan.model else _updates(learner.max_updates),
            "checkpoint": _checkpoints(config),
            "memory": session.memory,
        },
    )
    plan, worlds = session.plan, session.worlds
    found = (tiny_abroad(plan, worlds), few_tasks(config, worlds))
    for doubt in itertools.chain(*found, few_validation_tasks(config, worlds)):
        observer.warn(doubt)
    for line in judging:
        observer.note(line)
    if advice := first_advice(session.plan, policy.num_parameters[1], worlds[0]):
        observer.note(advice)
    for world in session.worlds:
        if config.eval.every and not world.can_validate:
            observer.note(
                f"env '{world.name}' has one training task and no split 'validation': the task is "
                "trained on, and there is none to choose a best checkpoint with"
            )
    return Opened(writer, Progress())
