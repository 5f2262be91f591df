"""The policies that `searchrl eval` plays and compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from searchrl.config import RunConfig
from searchrl.config.endpoint import MODEL, endpoint_address
from searchrl.engine.rollout.worlds import name_defaults
from searchrl.errors import ConfigError
from searchrl.plugins import Registry
from searchrl.programs.evaluate import resolve, script_name
from searchrl.run_folder import Run, find_damage

if TYPE_CHECKING:
    from searchrl.programs.setup.planning import Plan

_SHARED = ("tasks", "eval", "seed", "plugins", "strict_plugins", "sampling", "device")
"""Keys that say what is played and how it is measured; the others are the other policy's own."""


class Contender(NamedTuple):
    """A policy as a config, and its plan if it was planned."""

    config: RunConfig
    plan: Plan | None = None

    def settled(self, registry: Registry, note: Callable[[str], None]) -> Contender:
        """The same with what only plugins know (`Plan.settled`); `note` is told of it."""
        if self.plan is None:
            return Contender(name_defaults(self.config, registry))
        plan = self.plan.settled(registry)
        for text in plan.notes:
            note(text)
        return Contender(plan.config, plan)

    @property
    def name(self) -> str:
        """Its name in a table: a model, a run, or a script."""
        if (address := endpoint_address(self.config.policy)) is not None:
            return f"{self.config.model.name} at {address}"
        if self.plan is not None:
            return self.plan.model.label
        if self.config.policy != MODEL:
            return self.config.policy
        return self.config.init_from or self.config.model.name


def find_contender(
    policy: str, config: RunConfig, registry: Registry, note: Callable[[str], None]
) -> Contender:
    """The policy that `policy` names, on the tasks of `config`, which is the first policy's.

    `policy` is a run folder or a checkpoint, a model as `model.name` takes it, or `scripted:NAME`.
    Raises `ConfigError` for an endpoint, whose address and model are two flags, and `PolicyError`
    if there is no such model.
    """
    if endpoint_address(policy) is not None:
        raise ConfigError(
            f"--against {policy}: name an endpoint with --policy and --model, and with --against "
            "what it is compared with"
        )
    if policy.partition(":")[0] == "scripted":
        return Contender(config.model_copy(update={"policy": policy}))
    whole = config.to_dict()
    same = {key: whole[key] for key in _SHARED} | {"policy": MODEL}
    run = Run.find(policy)
    if run is not None and script_name(run.config.policy):  # it has no weights
        return Contender(config.model_copy(update={"policy": run.config.policy}))
    named = {"model": {"name": policy}} if run is None else {}
    _, plan = resolve(same, named, run=run, weights=policy)
    assert plan is not None
    for text in find_damage(run.path) if run is not None else ():
        note(text)
    plan.ensure_weights()  # before the first policy has played for hours
    return Contender(plan.config, plan).settled(registry, note)
