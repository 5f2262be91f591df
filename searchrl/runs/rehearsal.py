"""A rehearsal of `train`: two steps of a configuration on a shrunken copy of its model.

Owns the order of its parts and the verdicts on them; checks of tokens are the doctor's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from searchrl.config import RunConfig, build_config
from searchrl.core.episode import StopReason
from searchrl.engine.checks.report import Report, State, Verdict
from searchrl.engine.checks.texts import check_history
from searchrl.engine.learning.torchrun import read_place
from searchrl.engine.learning.workers import ALONE
from searchrl.engine.metrics.evaluation import run_episodes
from searchrl.engine.metrics.metrics import Metrics
from searchrl.engine.model.loading import ResolvedModel
from searchrl.engine.model.shrunken import save_shrunken
from searchrl.engine.rollout.drivers import limits_of
from searchrl.engine.rollout.rollout import Rollout
from searchrl.envs.splits import TRAIN
from searchrl.errors import ConfigError, SearchRLError
from searchrl.plugins import Registry
from searchrl.plugins.registry import describe_error
from searchrl.programs.setup.planning import Plan, prepare
from searchrl.programs.setup.session import Session
from searchrl.programs.train import train
from searchrl.run_folder import list_checkpoints
from searchrl.runs.export import export_policy
from searchrl.runs.source import Source
from searchrl.screen.observer import Observer
from searchrl.trust.permission import Permission

PARTS = ("model", "start", "history", "scripted", "train", "resume", "limits", "export")
"""Parts of a rehearsal in their order; the checks of the doctor come behind `start`."""

TURN_TOKENS = 64
"""Most tokens of a turn in the two steps: random weights never end one."""

_CUT = (StopReason.TURN_TOKENS, StopReason.TOTAL_TOKENS)


def rehearse(plan: Plan, observer: Observer, trust: bool | Permission) -> Report:
    """Rehearse a run in a temporary folder; an error is the verdict on its part.

    Raises `SearchRLError` for settings and plugins with which nothing can begin.
    """
    if read_place().size > 1:
        raise ConfigError("--rehearse works in one process: run it without torchrun")
    plan, registry = prepare("train", plan, on_note=observer.note, trust=trust)
    began, left, done = time.perf_counter(), [*PARTS], list[Verdict]()
    untried = ["real weights, their speed and memory (see `--dry-run` and `searchrl doctor`)"]
    if plan.config.init_from is not None:
        untried.append(f"init_from: {plan.config.init_from}")
    with TemporaryDirectory(prefix="searchrl-") as folder:
        try:
            for verdict in _play(plan, registry, Path(folder), observer, untried):
                done.append(verdict if verdict.name else replace(verdict, name=left.pop(0)))
                observer.phase("rehearsal", len(PARTS) - len(left), len(PARTS))
                if "scripted" not in left and any(one.state is State.FAILED for one in done):
                    break  # a step would fail in the same way
        except Exception as error:  # of plugins and libraries, too: they are what is tried
            text = str(error) if isinstance(error, SearchRLError) else describe_error(error)
            done.append(Verdict(State.FAILED, text, name=left.pop(0)))
    untried += [f"{', '.join(left)} (first fix what failed)"] if left else []
    done.append(Verdict(State.SKIPPED, "; ".join(untried), name="not tried"))
    return Report(tuple(done), time.perf_counter() - began)


class _Enough(Exception):
    """Ends a run as any error does: with a checkpoint."""


class _OneStep(Observer):
    def step(self, step: int, max_steps: int, metrics: Metrics) -> None:
        raise _Enough


def _play(
    plan: Plan, registry: Registry, folder: Path, observer: Observer, untried: list[str]
) -> Iterator[Verdict]:
    config, small = plan.config, ResolvedModel(str(folder / "model"), None, plan.model.is_tiny)
    yield Verdict(State.PASSED, save_shrunken(plan.model, folder / "model", config.seed))
    changes, given = {"name": small.path}, dict[str, Any]()
    if config.model.quantize != "none" and find_spec("bitsandbytes") is None:
        changes["quantize"] = "none"
        untried.append(f"model.quantize: {config.model.quantize} (bitsandbytes is not here)")
    if not config.engine.is_sampled_here:
        given["engine"] = {"generator": "auto"}
        untried.append(f"engine.generator: {config.engine.generator.name} (it samples elsewhere)")
    config = build_config(config.to_dict(), given | {"model": changes, "init_from": None})
    plan = replace(plan, config=config, model=small)
    with closing(Session(plan, registry, ALONE, observer.note)) as session:
        trained, total = session.policy.num_parameters
        yield Verdict(State.PASSED, f"{trained:,} of {total:,} weights are trained")
        yield from session.examine(is_thorough=True).checks
        yield check_history(session.policy.tokenizer, thinking=config.model.thinking)
        scripted = _play_scripts(session)
    yield _judge_scripts(scripted)
    short = build_config(config.to_dict(), _cut(config), {"run_dir": str(folder / "run")})
    with suppress(_Enough):
        train(replace(plan, config=short), registry=registry, observer=_OneStep())
    checkpoint = list_checkpoints(folder / "run")[-1]
    told = ", ".join(spec.name for spec in config.log.trackers) or "no tracker"
    yield Verdict(State.PASSED, f"one step, told to {told}; then the checkpoint {checkpoint.name}")
    run = train(resume=folder / "run", registry=registry, quiet=True)
    yield Verdict(State.PASSED, f"{run.summary['steps']} steps, the last one from the checkpoint")
    yield _judge_limits(limits_of(config).max_total_tokens, scripted, [*run.rollouts()])
    exported = export_policy(Source.open(run.path), folder / "export", registry, merge=True)
    yield Verdict(State.PASSED, f"{exported.kind}: {', '.join(exported.to_dict()['files'])}")


def _cut(config: RunConfig) -> dict[str, Any]:
    """Settings of two steps that differ: few prompts, groups of two, short turns."""
    rollout, few = config.rollout, 2 * len(config.tasks)
    sizes = {
        "prompts_per_step": min(rollout.prompts_per_step, few),
        "group_size": min(rollout.group_size, 2),
        "max_turn_tokens": min(rollout.max_turn_tokens, TURN_TOKENS),
    }
    return {
        "max_steps": 2,
        "max_sampled_tokens": None,
        "max_episodes": None,
        "rollout": sizes,
        "eval": {"num_tasks": few, "num_tasks_during": few},
        "log": {"rollouts": True},
    }


def _play_scripts(session: Session) -> list[Rollout]:
    """A few scored episodes of each scripted policy, in the tokens of the model."""
    options: dict[str, Any] = {"split": TRAIN, "num_tasks": 4, "seed": session.seed}
    return [
        rollout
        for world in session.worlds
        for script in world.entry.script_names[: 0 if world.is_served else 1]
        for rollout in run_episodes([world], session.imitator, script=script, **options).rollouts
    ]


def _judge_scripts(rollouts: Sequence[Rollout]) -> Verdict:
    if not rollouts:
        return Verdict(State.SKIPPED, "no environment has a scripted policy")
    for one in rollouts:
        if failure := one.episode.failure or one.scored.failure:
            says = f"{failure.kind} failure of {failure.owner}: {failure.message}"
            return Verdict(State.FAILED, says)
    rewards = [one.reward for one in rollouts if one.reward is not None]
    says = f"{len(rollouts)} episodes, {len(rewards)} with a reward, the largest is"
    return Verdict(State.PASSED, f"{says} {max(rewards, default=0):g}")


def _judge_limits(
    total: int, scripted: Sequence[Rollout], rows: Sequence[dict[str, Any]]
) -> Verdict:
    prompts = [one.trajectory.num_prompt_tokens for one in scripted]
    longest = max(prompts + [row["authors"].count("P") for row in rows])
    cut = sum(one.episode.stop_reason in _CUT for one in scripted)
    cut_random = sum(row["stop_reason"] in _CUT for row in rows)
    says = (
        f"largest prompt: {longest:,} of {total:,} tokens; cut by a limit: {cut} of "
        f"{len(scripted)} scripted episodes, and {cut_random} of {len(rows)} of random weights, "
        "which write no stop string"
    )
    fix = "Raise rollout.max_turn_tokens or rollout.max_total_tokens" if cut else ""
    return Verdict(State.WARNED if cut else State.PASSED, says, fix)
