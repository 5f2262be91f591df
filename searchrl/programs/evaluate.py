"""Evaluating a policy on its own: a model, a trained run, an endpoint or a scripted policy.

Owns what `policy` may be and the Python API `evaluate`. How tasks are played and measured is
`engine/metrics/evaluation.py`. Only a model of our own needs torch. Caller: `searchrl eval`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from searchrl.api_client import Client
from searchrl.config import RunConfig, build_config
from searchrl.config.endpoint import MODEL, endpoint_address
from searchrl.engine.metrics.breakdown import measure, with_components
from searchrl.engine.metrics.evaluation import EvalResult, evaluate_both, run_episodes
from searchrl.engine.metrics.failures import FailureLimit
from searchrl.engine.rollout.drivers import (
    make_driver,
    make_endpoint_driver,
    make_scripted_driver,
)
from searchrl.engine.rollout.world import TaskWorld, build_indexes, make_worlds
from searchrl.errors import ConfigError
from searchrl.plugins import Registry
from searchrl.programs.setup.judge_cost import describe_spent, foresee_evaluation
from searchrl.run_folder import save_beside
from searchrl.trust.permission import Permission

if TYPE_CHECKING:
    from searchrl.programs.setup.planning import Plan

_UNNAMED = ("auto", "tiny", "scratch")
"""What `model.name` may be, and no model of an endpoint is called."""


def script_name(policy: str) -> str | None:
    """The script a `policy` setting names: None for any other policy."""
    kind, _, name = policy.partition(":")
    return name or "expert" if kind == "scripted" else None


def needs_model(policy: str) -> bool:
    """Whether a policy has weights here, so that torch is needed."""
    return script_name(policy) is None and endpoint_address(policy) is None


def resolve(*layers: Mapping[str, Any]) -> tuple[RunConfig, Plan | None]:
    """The config of a policy in settings layers, and its plan if it has weights here."""
    policy = next((layer["policy"] for layer in reversed(layers) if "policy" in layer), MODEL)
    if not needs_model(str(policy)):
        return build_config(*layers), None
    from searchrl.programs.setup.planning import plan_run

    plan = plan_run(*layers)
    return plan.config, plan


def evaluate(
    config: RunConfig | Mapping[str, Any] | None = None,
    *,
    registry: Registry | None = None,
    on_phase: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> EvalResult:
    """Evaluate a policy on held-out tasks; the figures are those of the table of `searchrl eval`.

    Args:
        config: a resolved `RunConfig`, or settings such as `{"env": "regulations", "model":
            {"name": "tiny"}}`; `policy: scripted` and `policy: endpoint:URL` need no weights.
        registry: loaded plugins; by default the installed ones and `config.plugins`.

    Raises:
        SearchRLError: for anything wrong with names, data or weights.
        FailureLimitError: if more than `rollout.max_failure_frac` of the episodes failed; their
            tracebacks are in the file it names.
    """
    plan = None
    if not isinstance(config, RunConfig):
        config, plan = resolve(config or {})
    if registry is None:
        # What it takes over from the run that `init_from` names is not what the caller wrote.
        run = config.init_from if plan else None
        registry = Permission(plan.named if plan else frozenset()).load(config, run)
    if plan is not None:
        plan = plan.settled(registry)
        config = plan.config
    result = play_table(config, registry, on_phase, plan)
    limit = FailureLimit(
        "evaluation", config.rollout.max_failure_frac, save_beside, lambda text: None
    )
    limit.ensure((*result.rollouts, *result.forced), f"split '{config.eval.split}'", "eval")
    return result


def play_held_out(
    config: RunConfig,
    registry: Registry,
    on_phase: Callable[[str, int, int], None],
    plan: Plan | None = None,
    on_note: Callable[[str], None] = lambda text: None,
) -> EvalResult:
    """The episodes, with the figures that training has, too.

    `plan` says where the model of `config` comes from, if the caller has found that out already.
    `on_note` hears what judges will cost, and have cost.
    """
    worlds = make_worlds(config, registry)
    for line in foresee_evaluation(config, worlds, has_forced=needs_model(config.policy)):
        on_note(line)
    result = _play(config, registry, worlds, on_phase, plan)
    for line in describe_spent(worlds):
        on_note(line)
    return result


def _play(
    config: RunConfig,
    registry: Registry,
    worlds: list[TaskWorld],
    on_phase: Callable[[str, int, int], None],
    plan: Plan | None,
) -> EvalResult:
    """Play the policy of `config`: a script, an endpoint or a model."""
    build_indexes(worlds, on_phase)
    script, address = script_name(config.policy), endpoint_address(config.policy)
    if script is not None:
        driver = make_scripted_driver(config)
        return run_episodes(
            worlds,
            driver,
            split=config.eval.split,
            num_tasks=config.eval.num_tasks,
            seed=config.seed,
            script=script,
            num_samples=config.eval.num_samples,
            on_progress=lambda done, total: on_phase("evaluate", done, total),
        )
    if config.eval.num_samples > 1 and config.eval.temperature == 0:
        raise ConfigError(
            f"eval.num_samples = {config.eval.num_samples} with eval.temperature = 0: greedy "
            "episodes of one task are all the same; draw them, as with --temperature 1"
        )
    if address is not None:
        return _ask_endpoint(address, config, worlds, on_phase)
    from searchrl.programs.setup.planning import Plan

    settled = plan or Plan.of(config).settled(registry)
    policy = settled.load_policy(trainable=False)
    return evaluate_both(
        worlds,
        make_driver(policy, config, registry, config.eval),
        config.eval,
        seed=config.seed,
        num_samples=config.eval.num_samples,
        on_phase=on_phase,
    )


def play_table(
    config: RunConfig,
    registry: Registry,
    on_phase: Callable[[str, int, int], None],
    plan: Plan | None = None,
    on_note: Callable[[str], None] = lambda text: None,
) -> EvalResult:
    """What `play_held_out` plays, with every figure of the table (`breakdown.measure`).

    However many episodes fail: the caller looks at that.
    """
    result = play_held_out(with_components(config, registry), registry, on_phase, plan, on_note)
    return replace(result, metrics=result.metrics | measure(result.rollouts))


def _ask_endpoint(
    address: str,
    config: RunConfig,
    worlds: list[TaskWorld],
    on_phase: Callable[[str, int, int], None],
) -> EvalResult:
    """Play an endpoint. It has no forced variant: a server begins its messages itself."""
    if config.model.name in _UNNAMED:
        raise ConfigError(
            f"policy '{config.policy}' needs the name of a model that the server knows: "
            "--model NAME"
        )
    cut = config.sampling
    for key, value in (("top_k", cut.top_k), ("min_p", cut.min_p)):
        if value:
            raise ConfigError(
                f"sampling.{key} = {value:g} is not sent to an endpoint, because the interface has "
                f"no such key; a server that takes it anyway: --set endpoint.extra.{key}={value:g}"
            )
    with closing(Client(address, config.model.name, config.endpoint)) as client:
        result = run_episodes(
            worlds,
            make_endpoint_driver(config, client),
            split=config.eval.split,
            num_tasks=config.eval.num_tasks,
            seed=config.seed,
            has_logps=False,
            num_samples=config.eval.num_samples,
            on_progress=lambda done, total: on_phase("evaluate", done, total),
        )
        return replace(result, traffic=client.traffic)
