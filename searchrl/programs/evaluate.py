"""Evaluation: the same rollouts and rewards as training, greedy, on held-out tasks.

Owns which tasks are evaluated (the first N of a split: the same ones every time), the forced
variant that separates "does not search" from "cannot answer", the summary's keys, and how many
episodes may fail before figures mean nothing. Runs with a model or with a scripted policy; the
scripted one imports no torch. Callers: `train`, `sft`, the CLI.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig
from searchrl.config.sections import EvalConfig
from searchrl.core.episode import SEARCH, StopReason
from searchrl.engine.episodes.dialogue import RolloutRequest
from searchrl.engine.episodes.metrics import Metrics, summarise
from searchrl.engine.episodes.rollout import Limits, Rollout, RolloutDriver
from searchrl.engine.episodes.world import TaskWorld, make_worlds
from searchrl.engine.model.codec import TextCodec
from searchrl.engine.sampling.generator import Generator, mix_key
from searchrl.engine.sampling.scripted import ByteCodec, ScriptedGenerator
from searchrl.errors import ConfigError, FailureLimitError, PolicyError
from searchrl.plugins import Registry, load_plugins
from searchrl.run_folder import guarding

_EVAL_STREAM = 0xE7A1
"""Keeps the random streams of evaluation apart from those of training."""


SUMMARY_KEYS = (
    "em",
    "em_forced",
    "searched",
    "searches",
    "tool_calls",
    "format",
    "passive",
    "retrieved",
    "reward",
)
"""The metrics a summary holds, besides EM per kind of task."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Metrics with intervals and every episode behind them; `forced` are those of `em_forced`."""

    metrics: Metrics
    rollouts: tuple[Rollout, ...]
    forced: tuple[Rollout, ...] = ()


@dataclass(frozen=True, slots=True)
class FailureLimit:
    """What failed episodes lead to: saved tracebacks, a note and, above a share, the end.

    `program` is what stops; `save` writes a text under a name and returns where; `note` tells the
    user; `remedy` says how to go on once the fault is fixed.
    """

    program: str
    max_frac: float
    save: Callable[[str, str], Path]
    note: Callable[[str], None]
    remedy: str = "Fix it, or raise the limit with --set rollout.max_failure_frac=…"

    def ensure(self, rollouts: Sequence[Rollout], where: str, name: str) -> None:
        """Let a few failures pass; they are saved under `name` and told.

        Raises:
            FailureLimitError: if more than `max_frac` of the episodes failed.
        """
        failures = [(r, r.scored.failure) for r in rollouts if r.scored.failure is not None]
        if not failures:
            return
        path = self.save(
            name,
            "\n\n".join(
                f"{r.trajectory.rollout_id} ({r.episode.task.id})\n"
                f"{failure.kind}: {failure.owner}: {failure.message}\n{failure.detail}"
                for r, failure in failures
            ),
        )
        first = failures[0][1]
        cause = f"{first.kind} failure of {first.owner}: {first.message}"
        share = f"{len(failures)} of {len(rollouts)} episodes failed"
        self.note(f"{where}: {share} and are left out; {cause} ({path})")
        if len(failures) > self.max_frac * len(rollouts):
            raise FailureLimitError(
                f"{self.program} stopped at {where}: {share} "
                f"(limit: rollout.max_failure_frac={self.max_frac:g}).\n"
                f"First: {cause}\nTracebacks: {path}\n{self.remedy}"
            )


def save_beside(name: str, text: str) -> Path:
    """Save a text where there is no run folder: in a new file among the temporary ones."""
    with guarding(Path(tempfile.gettempdir())):
        handle, path = tempfile.mkstemp(prefix=f"searchrl-{name}-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    return Path(path)


def limits_of(config: RunConfig) -> Limits:
    """The rollout limits of a config."""
    rollout = config.rollout
    return Limits(
        max_turn_tokens=rollout.max_turn_tokens,
        max_observation_tokens=rollout.max_observation_tokens,
        max_total_tokens=min(rollout.max_total_tokens, config.model.max_context),
        env_timeout_s=rollout.env_timeout_s,
        thinking=config.model.thinking,
    )


def run_episodes(
    worlds: Sequence[TaskWorld],
    driver: RolloutDriver,
    settings: EvalConfig,
    *,
    num_tasks: int,
    seed: int,
    step: int = 0,
    forced: str | None = None,
    script: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> EvalResult:
    """Play the first `num_tasks` tasks of the split once each, shared between the worlds.

    Args:
        forced: commit the first turn to this kind of action by its opening tag; worlds whose
            protocol has none such are left out.
        script: name of the env's scripted policy, for a scripted driver.
    """
    requests = []
    for number, world in enumerate(worlds):
        count = min(max(1, num_tasks // len(worlds)), world.num_tasks(settings.split))
        requests += [
            RolloutRequest(
                group_id=f"eval/{number}/{index}" + (f"/{forced}" if forced else ""),
                world=world,
                split=settings.split,
                index=index,
                rng_keys=(mix_key(seed, _EVAL_STREAM, number, index),),
                forced=forced,
                script=world.script(script) if script else None,
                step=step,
            )
            for index in range(count)
            if forced is None or world.can_open(forced)
        ]
    groups = driver.run(requests, on_progress=on_progress, should_stop=should_stop)
    rollouts = tuple(rollout for group in groups for rollout in group.rollouts)
    _ensure_room(rollouts, driver.limits.max_total_tokens)
    return EvalResult(summarise(rollouts, worlds), rollouts)


def _ensure_room(rollouts: Sequence[Rollout], limit: int) -> None:
    """Refuse to measure episodes of which not one had a token left for its first turn."""
    is_full = [
        r.episode.stop_reason is StopReason.TOTAL_TOKENS and not r.episode.turns for r in rollouts
    ]
    if rollouts and all(is_full):
        shortest = min(r.trajectory.num_prompt_tokens for r in rollouts)
        raise ConfigError(
            f"no prompt leaves room for a turn: the shortest has {shortest} tokens, and an episode "
            f"may have {limit}; raise rollout.max_total_tokens (and model.max_context)"
        )


def evaluate_both(
    worlds: Sequence[TaskWorld],
    driver: RolloutDriver,
    settings: EvalConfig,
    *,
    seed: int,
    step: int = 0,
    on_phase: Callable[[str, int, int], None] = lambda name, done, total: None,
    should_stop: Callable[[], bool] | None = None,
) -> EvalResult:
    """The full evaluation: as it is, and (if `settings.forced`) with a forced first search.

    The second is left out where no protocol has a search.

    The forced figures appear as `em_forced` beside the plain ones, with several tasks also as
    `TASK/em_forced`.
    """
    plain = run_episodes(
        worlds,
        driver,
        settings,
        num_tasks=settings.num_tasks,
        seed=seed,
        step=step,
        on_progress=lambda done, total: on_phase("evaluate", done, total),
        should_stop=should_stop,
    )
    if not settings.forced or not any(world.can_open(SEARCH) for world in worlds):
        return plain
    forced = run_episodes(
        worlds,
        driver,
        settings,
        num_tasks=settings.num_tasks,
        seed=seed,
        step=step,
        forced=SEARCH,
        on_progress=lambda done, total: on_phase("evaluate, first turn forced", done, total),
        should_stop=should_stop,
    )
    metrics = dict(plain.metrics)
    for name, metric in forced.metrics.items():
        task, slash, key = name.rpartition("/")
        if key == "em":
            metrics[f"{task}{slash}em_forced"] = metric
    return EvalResult(metrics, plain.rollouts, forced.rollouts)


def summary_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The evaluation metrics a summary holds: `SUMMARY_KEYS`, and `em/KIND` per kind of task."""
    return {
        name: metric
        for name, metric in metrics.items()
        if name.rsplit("/", 1)[-1] in SUMMARY_KEYS or name.startswith("em/") or "/em/" in name
    }


def script_name(policy: str) -> str | None:
    """The script a `policy` setting names: None for `model`.

    Raises:
        ConfigError: if it is neither `model`, `scripted` nor `scripted:NAME`.
    """
    if policy == "model":
        return None
    kind, _, name = policy.partition(":")
    if kind != "scripted":
        raise ConfigError(f"unknown policy '{policy}': expected model, scripted or scripted:NAME")
    return name or "expert"


def make_driver(
    policy: Any,
    config: RunConfig,
    registry: Registry,
    temperature: float,
    batch_size: int,
    on_note: Callable[[str], None] = lambda text: None,
) -> RolloutDriver:
    """A rollout driver on the generator that the config names.

    Args:
        policy: what samples.
        config: `engine`, `sampling` and the limits are read.
        registry: where the generator's name is looked up.
        temperature: 0 is greedy.
        batch_size: dialogues decoded together.
        on_note: told why `auto` had to take the plain generator.

    Raises:
        PolicyError: if the generator that was asked for cannot run this policy.
    """
    from searchrl.engine.sampling.generator import Sampling

    cut = config.sampling
    sampling = Sampling(temperature, cut.top_k, cut.top_p, cut.min_p)
    limits = limits_of(config)
    # Positions beyond those a model was made for give nonsense, not an error.
    limits = replace(limits, max_total_tokens=min(limits.max_total_tokens, policy.max_positions))
    sizes = {"num_slots": batch_size, "max_length": limits.max_total_tokens}
    wanted = config.engine.generator
    is_auto = wanted.name == "auto"
    name = "slots" if is_auto else wanted.name
    try:
        made = registry.get("generator", name).make(policy, sampling, **sizes, **wanted.settings)
    except PolicyError as error:
        if not is_auto:
            raise
        on_note(f"generator: auto → hf ({error})")
        made = registry.get("generator", "hf").make(policy, sampling, **sizes)
    generator: Generator = made
    asked = config.engine.deterministic
    is_deterministic = policy.device.type == "cpu" if asked == "auto" else asked
    return RolloutDriver(generator, policy.renderer, limits, is_deterministic)


def make_scripted_driver(config: RunConfig, codec: TextCodec | None = None) -> RolloutDriver:
    """A rollout driver that replays the env's scripted policies; imports no torch."""
    codec = codec or ByteCodec()
    limits = limits_of(config)
    if isinstance(codec, ByteCodec):
        # Bytes are not tokens: a script is bounded by turns, not by a token budget.
        unbounded = 1 << 30
        limits = Limits(unbounded, limits.max_observation_tokens, unbounded, limits.env_timeout_s)
    encode = codec.encode_model_text
    return RolloutDriver(ScriptedGenerator(encode, codec.decode), codec, limits)


def evaluate(
    config: RunConfig | Mapping[str, Any] | None = None,
    *,
    registry: Registry | None = None,
    on_phase: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> EvalResult:
    """Evaluate a policy on held-out tasks.

    Args:
        config: a resolved `RunConfig`, or settings such as `{"env": "regulations", "model":
            {"name": "tiny"}}`; `policy: scripted` needs no model.
        registry: loaded plugins; by default the installed ones and `config.plugins`.

    Raises:
        SearchRLError: for anything wrong with names, data or weights.
        FailureLimitError: if more than `rollout.max_failure_frac` of the episodes failed; their
            tracebacks are in the file it names.
    """
    if not isinstance(config, RunConfig):
        from searchrl.config import build_config

        script = script_name(str((config or {}).get("policy", "model")))
        if script is None:
            from searchrl.programs.planning import plan_run

            config = plan_run(config or {}).config
        else:
            config = build_config(config or {})
    registry = registry or load_plugins(config.plugins, strict=config.strict_plugins)
    result = play_held_out(config, registry, on_phase)
    limit = FailureLimit(
        "evaluation", config.rollout.max_failure_frac, save_beside, lambda text: None
    )
    limit.ensure((*result.rollouts, *result.forced), f"split '{config.eval.split}'", "eval")
    return result


def play_held_out(
    config: RunConfig, registry: Registry, on_phase: Callable[[str, int, int], None]
) -> EvalResult:
    """What `evaluate` plays, however many episodes fail: the caller sees to that."""
    worlds = make_worlds(config, registry)
    script = script_name(config.policy)
    if script is not None:
        driver = make_scripted_driver(config)
        return run_episodes(
            worlds,
            driver,
            config.eval,
            num_tasks=config.eval.num_tasks,
            seed=config.seed,
            script=script,
            on_progress=lambda done, total: on_phase("evaluate", done, total),
        )
    from searchrl.programs.planning import load_planned_policy

    policy = load_planned_policy(config, trainable=False)
    settings = config.eval
    driver = make_driver(policy, config, registry, settings.temperature, settings.batch_size)
    return evaluate_both(worlds, driver, config.eval, seed=config.seed, on_phase=on_phase)
