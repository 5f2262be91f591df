"""The training loop, readable top to bottom: sample, score, update, record, evaluate.

Owns the order of things and nothing else: rollouts, scoring, the loss and checkpoints live below.
Ctrl-C and errors, whoever raises them, lose no finished step. A kill, or a disk too full for a
checkpoint, loses what came after the last one. `resume` continues exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from searchrl.algorithms import Algorithm
from searchrl.config import RunConfig
from searchrl.core.trajectory import TokenColumns
from searchrl.engine.episodes.metrics import Metrics, exact, summarise
from searchrl.engine.episodes.prompts import PromptStream
from searchrl.engine.episodes.records import rollout_record
from searchrl.engine.episodes.rollout import Interrupted, RolloutDriver
from searchrl.engine.episodes.world import TaskWorld, make_worlds, name_protocols
from searchrl.engine.learning.checkpoint import (
    latest_checkpoint,
    load_checkpoint,
    rotate_checkpoints,
    save_checkpoint,
    save_policy,
)
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.sharing import share_driver
from searchrl.engine.learning.step_groups import (
    sample_groups,
    sampler_metrics,
    train_item,
    update_metrics,
)
from searchrl.engine.learning.torchrun import read_place
from searchrl.engine.learning.workers import Workers
from searchrl.engine.model.loading import resolve_device
from searchrl.engine.model.policy import Policy
from searchrl.plugins import Registry
from searchrl.programs.evaluate import (
    EvalResult,
    FailureLimit,
    evaluate_both,
    make_driver,
    run_episodes,
    summary_metrics,
)
from searchrl.programs.observer import Observer, SilentObserver
from searchrl.programs.planning import (
    ensure_whole_distribution,
    first_advice,
    load_planned_policy,
    load_run_plugins,
    resolve_config,
    watch_memory,
)
from searchrl.programs.rescue import keeping_finished
from searchrl.programs.stopping import StopFlag, catching_ctrl_c
from searchrl.run_folder import Run, RunWriter, SilentWriter, choose_folder
from searchrl.trackers.feed import Trackers


class _Session:
    """Everything one training run holds."""

    def __init__(
        self,
        config: RunConfig,
        registry: Registry,
        observer: Observer,
        stop: StopFlag,
        workers: Workers,
    ) -> None:
        ensure_whole_distribution(config)
        self.config = config
        self.registry = registry
        self.observer = observer
        self.stop = stop
        self.workers = workers
        self.worlds: list[TaskWorld] = make_worlds(config, registry)
        for world in self.worlds:
            world.num_tasks("train")
            world.num_tasks(config.eval.split)
        # An algorithm may have weights of its own: the same in every run and every process.
        torch.manual_seed(config.seed)
        self.algorithm: Algorithm = registry.get("algorithm", config.algorithm.name).make(
            **config.algorithm.settings
        )
        self.length_penalty = self.algorithm.length_penalty_of(config.rollout.max_total_tokens)
        self.memory = watch_memory(config, self.algorithm.resolve(config.algorithm).beta > 0)
        self.policy: Policy = load_planned_policy(config, trainable=True)
        self.learner = Learner(
            self.policy,
            self.algorithm,
            config.algorithm,
            config.optim,
            max_steps=config.max_steps,
            temperature=config.rollout.temperature,
            constant=config.rollout.max_total_tokens,
            seed=config.seed,
            workers=workers,
        )
        rollout, evaluation = config.rollout, config.eval
        self.sampler: RolloutDriver = self._make_driver(
            rollout.temperature, rollout.batch_size, observer.note
        )
        self.evaluator: RolloutDriver = self._make_driver(
            evaluation.temperature, evaluation.batch_size, lambda text: None
        )
        self.prompts = PromptStream(
            self.worlds, config.seed, config.rollout.prompts_per_step, config.rollout.group_size
        )

    def _make_driver(
        self, temperature: float, batch_size: int, note: Callable[[str], None]
    ) -> RolloutDriver:
        made = make_driver(self.policy, self.config, self.registry, temperature, batch_size, note)
        return share_driver(made, self.workers)


def train(
    config: RunConfig | Mapping[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    registry: Registry | None = None,
) -> Run:
    """Train a policy and return its run folder.

    Args:
        config: a resolved `RunConfig`, or settings such as `{"env": "regulations"}`; ignored
            with `resume`, which takes the run's own.
        resume: a run folder to continue from its newest checkpoint.
        observer: told of everything that happens.
        registry: loaded plugins; by default the installed ones and `config.plugins`.

    Raises:
        SearchRLError: for anything a user can fix (names, data, weights, disk, plugins).
        KeyboardInterrupt: after Ctrl-C, with a checkpoint written.

    Whatever is raised once the run has begun, a checkpoint of the last finished step is written
    first and the observer is told how to go on. Under torchrun the processes share the work; the
    first one writes and is the one with an observer.
    """
    workers = Workers(read_place())
    if observer is None or not workers.is_first:
        observer = SilentObserver()
    config = resolve_config(config, resume, observer.note)
    registry = registry or load_run_plugins(config, resume, observer.note)
    config = name_protocols(config, registry)
    trackers_here = config.log.trackers if workers.is_first else ()
    for spec in config.log.trackers:
        registry.get("tracker", spec.name).ensure_settings(spec.settings)
    with (
        workers.joined(resolve_device(config.device)),
        catching_ctrl_c(and_sigterm=workers.size > 1) as stop,
    ):
        if resume is None and workers.is_first:
            choose_folder(config)
        workers.barrier()  # nobody loads weights for a folder that will not do
        session = _Session(config, registry, observer, stop, workers)
        try:
            writer, state = _begin(session) if resume is None else _reopen(session, Path(resume))
            save = partial(_save, session, writer, state)
            with (
                Trackers(registry, trackers_here, writer.path) as trackers,
                keeping_finished("train", writer.path, save, observer.note),
            ):
                summary = _run(session, writer, trackers, state)
        finally:
            for world in session.worlds:
                world.close()
    observer.done(writer.path, summary)
    return Run(writer.path)


def _reopen(session: _Session, run_dir: Path) -> tuple[RunWriter, dict[str, Any]]:
    """Go back to the newest checkpoint of a run; what was recorded after it will recur."""
    state = load_checkpoint(latest_checkpoint(run_dir), session.policy, session.learner)
    session.learner.ensure_same_weights(f"resumed after step {state['step']}")
    repeated = ("after",) if state["before"] else ("before", "after")
    writer_type = RunWriter if session.workers.is_first else SilentWriter
    writer = writer_type.reopen(run_dir, int(state["step"]), repeated)
    session.observer.note(f"resumed {run_dir} after step {state['step']}")
    return writer, state


def _begin(session: _Session) -> tuple[RunWriter, dict[str, Any]]:
    """Record what is about to happen and write checkpoint 0: from here on a run can resume."""
    config = session.config
    session.learner.ensure_same_weights("at the start")
    writer = _create_writer(session)
    trainable, total = session.policy.num_parameters
    writer.write_provenance(
        session.registry.provenance(),
        seed=config.seed,
        fingerprint=config.fingerprint,
        model=session.policy.source,
        device=str(session.policy.device),
        algorithm={"name": config.algorithm.name, **asdict(session.learner.loss_settings)},
        trainable_parameters=trainable,
        parameters=total,
    )
    session.observer.plan(
        config,
        {
            "model": session.policy.source,
            "device": str(session.policy.device),
            "parameters": f"{total:,} ({trainable:,} trained)",
            "run": str(writer.path),
            "algorithm": (
                f"{config.algorithm.name}, {config.max_steps} steps of "
                f"{config.rollout.prompts_per_step} prompts × {config.rollout.group_size} "
                f"rollouts, lr {config.optim.lr:g}, {session.learner.loss_settings.describe()}"
            ),
            "update": session.learner.describe(),
            "memory": session.memory.plan,
        },
    )
    if advice := first_advice(config, session.policy):
        session.observer.note(advice)
    state: dict[str, Any] = {"step": 0, "before": None, "best": None, "evaluated": 0}
    _checkpoint(session, writer, state)
    return writer, state


def _create_writer(session: _Session) -> RunWriter:
    """The writer of a new folder, in the first process; the others know where it is."""
    writer = RunWriter.create(session.config) if session.workers.is_first else None
    path = session.workers.gather(None if writer is None else writer.path)[0]
    assert path is not None
    return writer or SilentWriter(path)


def _run(
    session: _Session, writer: RunWriter, trackers: Trackers, state: dict[str, Any]
) -> dict[str, Any]:
    """The evaluation before, steps until `max_steps`, the evaluation after and the summary."""
    config, observer = session.config, session.observer
    if state["before"] is None:
        # What everything later is compared with; part of checkpoint 0.
        state["before"] = _evaluate(session, writer, "before", 0).metrics
        _checkpoint(session, writer, state)
    _evaluate_during(session, writer, trackers, state)
    for step in range(int(state["step"]), config.max_steps):
        metrics = _train_step(session, writer, step, state)
        number = step + 1
        writer.log(number, metrics, "train")
        trackers.log(number, metrics, "train")
        observer.step(number, config.max_steps, metrics)
        _evaluate_during(session, writer, trackers, state)
        if number % config.checkpoint.every == 0 or number == config.max_steps:
            _checkpoint(session, writer, state)
        if session.workers.agree_to_stop(session.stop.asked):
            raise Interrupted
    after = _evaluate(session, writer, "after", config.max_steps)
    if session.workers.is_first:
        save_policy(writer.path, session.policy)
    summary = _summary(session, writer, state, after)
    session.memory.tell_peak(observer.note)
    writer.write_summary(summary)
    return summary


def _train_step(session: _Session, writer: RunWriter, step: int, state: dict[str, Any]) -> Metrics:
    """Sample groups, update once, record every trajectory; returns the step's metrics."""
    config, observer, algorithm = session.config, session.observer, session.algorithm
    started = time.perf_counter()
    session.sampler.generator.sync(session.policy)
    drawn = sample_groups(
        session.sampler,
        session.prompts,
        step,
        max_refills=algorithm.max_refills or 0,
        on_progress=lambda done, total: observer.phase("sample", done, total),
        should_stop=session.stop,
    )
    sampled = time.perf_counter()
    rollouts = drawn.rollouts
    limit = _failure_limit(session, writer)
    limit.ensure(rollouts, f"step {step + 1}", f"step_{step + 1:06d}")
    _free_cache(session.policy)
    columns: dict[str, TokenColumns] = {}
    observer.phase("update", 0, 1)
    extended = algorithm.extend(drawn.groups, step)
    penalty = session.length_penalty
    items = [train_item(rollout, penalty) for group in extended for rollout in group.rollouts]
    stats = session.learner.train_step(items, on_tokens=columns.__setitem__)
    # From here on the weights are those of the finished step, whatever becomes of its record.
    state["step"] = step + 1
    _free_cache(session.policy)
    updated = time.perf_counter()
    if config.log.rollouts:
        writer.write_rollouts(
            f"step_{step + 1:06d}",
            (rollout_record(r, "train", columns.get(r.trajectory.rollout_id)) for r in rollouts),
            compress=config.log.compress,
            keep=config.log.max_rollout_files,
        )
    metrics = summarise(rollouts, session.worlds)
    model_tokens = sum(r.episode.num_model_tokens for r in rollouts)
    metrics |= update_metrics(stats, drawn, penalty, algorithm.max_refills)
    metrics |= sampler_metrics(session.sampler.generator, session.workers)
    metrics["sample_s"] = exact(sampled - started)
    metrics["update_s"] = exact(updated - sampled)
    metrics["tokens_per_s"] = exact(model_tokens / max(updated - started, 1e-9))
    return metrics


def _failure_limit(session: _Session, writer: RunWriter) -> FailureLimit:
    return FailureLimit(
        "training",
        session.config.rollout.max_failure_frac,
        writer.write_failure,
        session.observer.note,
        f"Fix it, then continue with: searchrl train --resume {writer.path}",
    )


def _free_cache(policy: Policy) -> None:
    """Between phases only: sampling and updating want memory in different shapes.

    Inside a micro-batch loop this would cost more than it frees.
    """
    if policy.device.type == "cuda":
        torch.cuda.empty_cache()


def _evaluate(session: _Session, writer: RunWriter, label: str, step: int) -> EvalResult:
    """The full evaluation, recorded; shows one episode."""
    config = session.config
    session.evaluator.generator.sync(session.policy)
    result = evaluate_both(
        session.worlds,
        session.evaluator,
        config.eval,
        seed=config.seed,
        step=step,
        on_phase=lambda name, done, total: session.observer.phase(f"{name} ({label})", done, total),
        should_stop=session.stop,
    )
    for phase, rollouts in ((label, result.rollouts), (f"{label}_forced", result.forced)):
        if config.log.rollouts and rollouts:
            writer.write_rollouts(
                f"eval_{phase}",
                (rollout_record(r, phase, None) for r in rollouts),
                compress=config.log.compress,
            )
    limit = _failure_limit(session, writer)
    played = (*result.rollouts, *result.forced)
    limit.ensure(played, f"the evaluation {label} (step {step})", f"eval_{label}")
    writer.log(step, result.metrics, label)
    session.observer.evaluation(label, step, result.metrics)
    session.observer.episodes(label, result.rollouts)
    return result


def _evaluate_during(
    session: _Session, writer: RunWriter, trackers: Trackers, state: dict[str, Any]
) -> None:
    """A short evaluation if one is due at this step; remembers the best checkpoint by reward."""
    config, step = session.config, int(state["step"])
    is_due = config.eval.every and step % config.eval.every == 0 and step < config.max_steps
    if not is_due or state["evaluated"] == step:
        return
    session.evaluator.generator.sync(session.policy)
    result = run_episodes(
        session.worlds,
        session.evaluator,
        config.eval,
        num_tasks=config.eval.num_tasks_during,
        seed=config.seed,
        step=step,
        on_progress=lambda done, total: session.observer.phase("evaluate", done, total),
        should_stop=session.stop,
    )
    if config.log.rollouts:
        writer.write_rollouts(
            f"eval_during_{step:06d}",
            (rollout_record(r, "during", None) for r in result.rollouts),
            compress=config.log.compress,
            keep=config.log.max_rollout_files,
        )
    limit = _failure_limit(session, writer)
    where = f"the evaluation during training (step {step})"
    limit.ensure(result.rollouts, where, f"eval_during_{step:06d}")
    writer.log(step, result.metrics, "during")
    # Until here a resumed run begins with this evaluation.
    state["evaluated"] = step
    reward, best = result.metrics.get("reward"), state["best"]
    is_best = reward is not None and (best is None or reward["value"] > best["reward"]["value"])
    if is_best:
        state["best"] = {"step": step, "reward": reward}
    trackers.log(step, result.metrics, "eval")
    session.observer.evaluation("during", step, result.metrics)
    if is_best:
        _checkpoint(session, writer, state)


def _checkpoint(session: _Session, writer: RunWriter, state: Mapping[str, Any]) -> None:
    session.observer.phase("checkpoint", 0, 1)
    _save(session, writer, state)


def _save(session: _Session, writer: RunWriter, state: Mapping[str, Any]) -> int:
    """Write the checkpoint of the last finished step, in one process; returns its number.

    Raises:
        RuntimeError: if a step was broken off half-way: its weights are of no step at all.
    """
    if session.learner.is_halfway:
        raise RuntimeError("the update that was broken off had changed weights already")
    if not session.workers.is_first:
        return int(state["step"])
    settings = session.config.checkpoint
    save_checkpoint(writer.path, session.policy, session.learner, state)
    best = state["best"]
    kept = f"step_{best['step']:06d}" if best and settings.keep_best else None
    rotate_checkpoints(writer.path, settings.keep_last, kept)
    return int(state["step"])


def _summary(
    session: _Session, writer: RunWriter, state: Mapping[str, Any], after: EvalResult
) -> dict[str, Any]:
    config = session.config
    return {
        "env": [task.env.name for task in config.tasks],
        "reward": [str(world.scorer.schedule) for world in session.worlds],
        "model": session.policy.source,
        "seed": config.seed,
        "steps": config.max_steps,
        "fingerprint": config.fingerprint,
        "before": summary_metrics(state["before"]),
        "after": summary_metrics(after.metrics),
        "best": state["best"],
        "policy": str(writer.path / "policy"),
        "ask": f'searchrl ask {writer.path} "…"',
    }
