"""Cold start: supervised fine-tuning on demonstrations, before GRPO.

Owns the stages, where demonstrations come from (the env's scripted policies, or a JSONL of
traces), what becomes of those that a token limit cuts, and the run folder of an sft run.
Demonstrations pass through the same rollout driver as sampled episodes, so that tokens, authors and
observations are exactly those of training.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from searchrl.config import RunConfig
from searchrl.config.sections import SftStage
from searchrl.core.episode import StopReason
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.episodes.dialogue import RolloutRequest
from searchrl.engine.episodes.metrics import exact, proportion
from searchrl.engine.episodes.rollout import Interrupted, RolloutDriver
from searchrl.engine.episodes.world import TaskWorld, make_worlds, name_protocols
from searchrl.engine.learning.checkpoint import (
    latest_checkpoint,
    load_checkpoint,
    rotate_checkpoints,
    save_checkpoint,
    save_policy,
)
from searchrl.engine.learning.supervised import SupervisedLearner
from searchrl.engine.learning.torchrun import ensure_one_process
from searchrl.engine.model.loading import resolve_device
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.scratch import make_policy
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import ConfigError, DataError
from searchrl.plugins import Registry
from searchrl.programs.evaluate import (
    FailureLimit,
    evaluate_both,
    make_driver,
    make_scripted_driver,
    summary_metrics,
)
from searchrl.programs.observer import Observer, SilentObserver
from searchrl.programs.planning import (
    load_planned_policy,
    load_run_plugins,
    resolve_config,
    set_threads,
)
from searchrl.programs.rescue import keeping_finished
from searchrl.programs.stopping import StopFlag, catching_ctrl_c
from searchrl.programs.traces import Trace, load_traces, trace_trajectory
from searchrl.run_folder import Run, RunWriter, choose_folder

_DEMO, _DROPOUT = 0x5F7, 0xD0


class Demonstration(NamedTuple):
    """What is imitated: whole turns only. `is_cut` says that a token limit left out later ones."""

    trajectory: Trajectory
    is_cut: bool


def sft(
    config: RunConfig | Mapping[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    observer: Observer | None = None,
    registry: Registry | None = None,
) -> Run:
    """Train on demonstrations and return the run folder.

    Args:
        config: a resolved `RunConfig` or settings; `model.name: scratch` makes a new small model.
        resume: an sft run to continue from its newest checkpoint.
        observer: told of everything that happens.
        registry: loaded plugins; by default the installed ones and `config.plugins`.

    Raises:
        SearchRLError: for anything a user can fix.
        KeyboardInterrupt: after Ctrl-C, with a checkpoint written.

    Whatever is raised once the run has begun, a checkpoint of the last finished step is written
    first and the observer is told how to go on.
    """
    ensure_one_process("sft")
    observer = observer or SilentObserver()
    config = resolve_config(config, resume, observer.note)
    registry = registry or load_run_plugins(config, resume, observer.note)
    config = name_protocols(config, registry)
    if resume is None:
        choose_folder(config)
    worlds = make_worlds(config, registry)
    traces = load_traces(config.sft.traces) if config.sft.traces else None
    for stage in config.sft.stages:
        for name in stage.mix if traces is None else ():
            for world in worlds:
                world.script(name)
    policy = _make_policy(config, worlds)
    learner = SupervisedLearner(policy, config.sft.max_grad_norm, config.sft.micro_batch_tokens)
    fitted = _fit_context(config, policy)
    demonstrate = _Demonstrator(fitted, worlds, policy, traces)
    writer, state = _open(config, registry, policy, learner, observer, resume)
    save = partial(_save, config, writer, learner, state)
    try:
        with (
            catching_ctrl_c() as stop,
            keeping_finished("sft", writer.path, save, observer.note),
        ):
            _train(fitted, learner, writer, state, demonstrate, observer, stop)
            if state["cut_demos"]:
                observer.note(
                    f"{state['cut_demos']} of {state['demos']} demonstrations were cut at a token "
                    "limit and trained without the turns that did not fit "
                    f"({_limits_text(fitted)})"
                )
            save_policy(writer.path, policy)
            step = int(state["step"])
            summary = _finish(config, registry, worlds, policy, writer, step, observer, stop)
    finally:
        for world in worlds:
            world.close()
    observer.done(writer.path, summary)
    return Run(writer.path)


def _finish(
    config: RunConfig,
    registry: Registry,
    worlds: Sequence[TaskWorld],
    policy: Policy,
    writer: RunWriter,
    step: int,
    observer: Observer,
    stop: StopFlag,
) -> dict[str, Any]:
    """The evaluation after, recorded, and the summary."""
    settings = config.eval
    driver = make_driver(policy, config, registry, settings.temperature, settings.batch_size)
    after = evaluate_both(
        worlds,
        driver,
        config.eval,
        seed=config.seed,
        on_phase=lambda name, done, total: observer.phase(f"{name} (after)", done, total),
        should_stop=stop,
    )
    limit = FailureLimit(
        "the cold start",
        config.rollout.max_failure_frac,
        writer.write_failure,
        observer.note,
        f"Fix it, then continue with: searchrl sft --resume {writer.path}",
    )
    limit.ensure((*after.rollouts, *after.forced), "the evaluation after", "eval_after")
    writer.log(step, after.metrics, "after")
    summary = {
        "env": [task.env.name for task in config.tasks],
        "model": policy.source,
        "seed": config.seed,
        "steps": step,
        "fingerprint": config.fingerprint,
        "after": summary_metrics(after.metrics),
        "policy": str(writer.path / "policy"),
        "train": f"searchrl train --init-from {writer.path}",
    }
    writer.write_summary(summary)
    observer.evaluation("after", step, after.metrics)
    return summary


def _make_policy(config: RunConfig, worlds: Sequence[TaskWorld]) -> Policy:
    """Load the policy, or make a new one whose tokenizer has read scripted episodes."""
    if config.model.name != "scratch":
        return load_planned_policy(config, trainable=True)
    set_threads(config)
    count = config.model.scratch.tokenizer_tasks
    driver = make_scripted_driver(config)
    requests = [
        _demo_request(world, _reading(world, config), n // len(worlds), config.seed, "tokenizer")
        for n, world in zip(range(count), itertools.cycle(worlds), strict=False)
    ]
    texts = []
    for group in driver.run(requests):
        rollout = group.rollouts[0]
        prompt_ids = rollout.trajectory.ids[: rollout.trajectory.num_prompt_tokens]
        texts.append(driver.codec.decode(prompt_ids))
        for turn in rollout.episode.turns:
            texts += [turn.text, turn.observation]
    return make_policy(
        config.model.scratch,
        texts,
        resolve_device(config.device),
        config.model.max_context,
        config.seed,
    )


def _reading(world: TaskWorld, config: RunConfig) -> str:
    """Whose episodes the tokenizer reads: the expert's, else those of the first stage's script."""
    mix = config.sft.stages[0].mix
    return "expert" if "expert" in world.entry.script_names else max(mix, key=lambda n: mix[n])


def _fit_context(config: RunConfig, policy: Policy) -> RunConfig:
    """The config with a context no longer than the policy's positions: more give nonsense."""
    context = min(config.model.max_context, policy.max_positions)
    return config.model_copy(
        update={"model": config.model.model_copy(update={"max_context": context})}
    )


def _open(
    config: RunConfig,
    registry: Registry,
    policy: Policy,
    learner: SupervisedLearner,
    observer: Observer,
    resume: str | Path | None,
) -> tuple[RunWriter, dict[str, Any]]:
    """Make the run folder, or go back to the newest checkpoint of an old one."""
    state: dict[str, Any] = {"step": 0, "best": None, "demos": 0, "cut_demos": 0}
    if resume is not None:
        state |= load_checkpoint(latest_checkpoint(Path(resume)), policy, learner)
        observer.note(f"resumed {resume} after step {state['step']}")
        return RunWriter.reopen(resume, int(state["step"])), state
    writer = RunWriter.create(config)
    writer.write_provenance(
        registry.provenance(), seed=config.seed, fingerprint=config.fingerprint, model=policy.source
    )
    facts = {"model": policy.source, "device": str(policy.device), "run": str(writer.path)}
    for number, stage in enumerate(config.sft.stages, start=1):
        source = config.sft.traces or ", ".join(f"{v:g} {name}" for name, v in stage.mix.items())
        facts[f"stage {number}"] = (
            f"{stage.steps} steps of {stage.batch_size} demonstrations ({source}), lr {stage.lr:g}"
        )
    observer.plan(config, facts)
    return writer, state


def _train(
    config: RunConfig,
    learner: SupervisedLearner,
    writer: RunWriter,
    state: dict[str, Any],
    demonstrate: Callable[[SftStage, int], list[Demonstration]],
    observer: Observer,
    stop: StopFlag,
) -> None:
    total = sum(stage.steps for stage in config.sft.stages)
    steps = list(enumerate(_schedule(config.sft.stages)))[int(state["step"]) :]
    for step, stage, stage_step, demonstrations in _ahead(steps, demonstrate):
        started = time.perf_counter()
        num_cut = sum(demonstration.is_cut for demonstration in demonstrations)
        counted = _count_cut(config, state, observer, step, num_cut, len(demonstrations))
        dropout_seed = mix_key(config.seed, _DROPOUT, step) >> 1
        # One without a whole turn teaches nothing; its prompt may be too long to be read.
        trajectories = [d.trajectory for d in demonstrations if d.trajectory.turns]
        stats = learner.train_step(trajectories, stage, stage_step, seed=dropout_seed)
        state |= {"step": step + 1, **counted}
        num_tokens = int(stats.pop("num_tokens"))
        metrics = {name: exact(value, num_tokens) for name, value in stats.items()}
        metrics["cut_demos"] = proportion(num_cut, len(demonstrations))
        metrics["tokens_per_s"] = exact(num_tokens / (time.perf_counter() - started))
        writer.log(step + 1, metrics, "sft")
        observer.step(step + 1, total, metrics)
        if (step + 1) % config.checkpoint.every == 0 or step + 1 == total:
            _save(config, writer, learner, state)
        if stop.asked:
            raise Interrupted


def _save(
    config: RunConfig, writer: RunWriter, learner: SupervisedLearner, state: Mapping[str, Any]
) -> int:
    """Write the checkpoint of the last finished step; returns its number."""
    save_checkpoint(writer.path, learner.policy, learner, state)
    rotate_checkpoints(writer.path, config.checkpoint.keep_last, None)
    return int(state["step"])


def _count_cut(
    config: RunConfig,
    state: dict[str, Any],
    observer: Observer,
    step: int,
    num_cut: int,
    num_demos: int,
) -> dict[str, int]:
    """The state's counts with this step's, once it is finished; says so the first time.

    Raises:
        ConfigError: if no demonstration was whole so far: nobody would be shown how to end.
    """
    if num_cut and not state["cut_demos"]:
        observer.note(
            f"step {step + 1}: {num_cut} of {num_demos} demonstrations were cut at a token limit; "
            f"turns that do not fit are left out ({_limits_text(config)})"
        )
    counted = {
        "demos": state["demos"] + num_demos,
        "cut_demos": state["cut_demos"] + num_cut,
    }
    if counted["cut_demos"] == counted["demos"]:
        raise ConfigError(
            f"every demonstration so far ({num_demos} of {num_demos}) was cut at a token limit: "
            f"they do not fit {_limits_text(config)}; raise them"
        )
    return counted


def _limits_text(config: RunConfig) -> str:
    return (
        f"rollout.max_turn_tokens={config.rollout.max_turn_tokens}, "
        f"rollout.max_total_tokens={config.rollout.max_total_tokens}, "
        f"model.max_context={config.model.max_context}"
    )


def _ahead(
    steps: Sequence[tuple[int, tuple[SftStage, int]]],
    demonstrate: Callable[[SftStage, int], list[Demonstration]],
) -> Iterator[tuple[int, SftStage, int, list[Demonstration]]]:
    """Each step with its demonstrations. Scripts need no weights: they play one step ahead."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = [pool.submit(demonstrate, stage, step) for step, (stage, _) in steps[:1]]
        for place, (step, (stage, stage_step)) in enumerate(steps):
            for later, (later_stage, _) in steps[place + 1 : place + 2]:
                waiting.append(pool.submit(demonstrate, later_stage, later))
            yield step, stage, stage_step, waiting.pop(0).result()


def _schedule(stages: Sequence[SftStage]) -> Iterator[tuple[SftStage, int]]:
    """(stage, step within it) for every step of the run."""
    for stage in stages:
        for step in range(stage.steps):
            yield stage, step


class _Demonstrator:
    """Demonstrations of a step: a pure function of (seed, step)."""

    def __init__(
        self,
        config: RunConfig,
        worlds: Sequence[TaskWorld],
        policy: Policy,
        traces: Sequence[Trace] | None,
    ) -> None:
        self.config = config
        self.worlds = worlds
        self.traces = None if traces is None else _encode(traces, config, worlds[0], policy)
        self.driver: RolloutDriver = make_scripted_driver(config, policy.renderer)

    def __call__(self, stage: SftStage, step: int) -> list[Demonstration]:
        rng = random.Random(mix_key(self.config.seed, _DEMO, step))
        if self.traces is not None:
            return [rng.choice(self.traces) for _ in range(stage.batch_size)]
        names = rng.choices(list(stage.mix), list(stage.mix.values()), k=stage.batch_size)
        requests = []
        for number, name in enumerate(names):
            world = rng.choice(self.worlds)
            index = rng.randrange(world.num_tasks("train"))
            requests.append(_demo_request(world, name, index, self.config.seed, f"{step}/{number}"))
        groups = self.driver.run(requests)
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        failed = [r for r in rollouts if r.episode.failure is not None]
        if failed:
            failure = failed[0].episode.failure
            assert failure is not None
            raise ConfigError(
                f"a demonstration failed: {failure.owner}: {failure.message}\n{failure.detail}"
            )
        limits = (StopReason.TURN_TOKENS, StopReason.TOTAL_TOKENS)
        return [
            Demonstration(_whole_turns(r.trajectory), r.episode.stop_reason in limits)
            for r in rollouts
        ]


def _whole_turns(trajectory: Trajectory) -> Trajectory:
    """The trajectory without a last turn that was cut: half a turn would be learnt as a whole."""
    turns = trajectory.turns
    if not turns or turns[-1].reason is not TurnStop.MAX_TOKENS:
        return trajectory
    whole = Trajectory(
        trajectory.rollout_id,
        trajectory.group_id,
        trajectory.env,
        trajectory.task_id,
        trajectory.origin,
    )
    ids, versions = trajectory.ids, trajectory.policy_versions
    whole.append_prompt(ids[: turns[0].start])
    for turn, after in pairwise(turns):
        version, reason = versions[turn.start], turn.reason
        whole.append_model(ids[turn.start : turn.stop], None, version=version, reason=reason)
        whole.append_env(ids[turn.stop : after.start])
    return whole


def _encode(
    traces: Sequence[Trace], config: RunConfig, world: TaskWorld, policy: Policy
) -> list[Demonstration]:
    """All traces as demonstrations.

    Raises:
        DataError: listing the traces whose first turn does not fit: they would teach nothing.
    """
    encoded = []
    for trace in traces:
        trajectory = trace_trajectory(trace, policy.renderer, world.protocol, config)
        is_cut = len(trajectory.turns) < len(trace.turns)
        encoded.append(Demonstration(trajectory, is_cut))
    pairs = zip(traces, encoded, strict=True)
    empty = [trace.id for trace, (trajectory, _) in pairs if not trajectory.turns]
    if empty:
        raise DataError(
            f"{len(empty)} traces have no turn within rollout.max_total_tokens="
            f"{config.rollout.max_total_tokens} and model.max_context="
            f"{config.model.max_context}: {', '.join(empty)}"
        )
    return encoded


def _demo_request(
    world: TaskWorld, script: str, index: int, seed: int, label: str
) -> RolloutRequest:
    return RolloutRequest(
        group_id=f"demo/{label}/{index}",
        world=world,
        split="train",
        index=index,
        rng_keys=(mix_key(seed, _DEMO, index),),
        script=world.script(script),
    )
