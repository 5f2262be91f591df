"""The policy of a run, a language model or a network of choices, and what plays episodes with it.

Owns the one place where the two are told apart; whoever has a policy or a driver does not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from searchrl.config import RunConfig
from searchrl.config.sections import EvalConfig, RolloutConfig
from searchrl.engine.choosing.chooser import Chooser
from searchrl.engine.choosing.loading import make_choices
from searchrl.engine.choosing.policy import Choices
from searchrl.engine.choosing.rollout import ChoiceDriver
from searchrl.engine.episodes.drivers import limits_of, make_driver
from searchrl.engine.episodes.playing import Player
from searchrl.engine.episodes.world import TaskWorld
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.generator import DrawWatch
from searchrl.plugins import Registry
from searchrl.programs.setup.planning import Plan, set_threads


def load_any(
    plan: Plan, registry: Registry, worlds: Sequence[TaskWorld], *, trainable: bool
) -> Policy | Choices:
    """Load the policy of a plan.

    Raises:
        SearchRLError: its weights cannot be had, or it does not fit the tasks.
    """
    if plan.model is not None:
        return plan.load_policy(trainable=trainable)
    set_threads(plan.config)
    return make_choices(plan.config, registry, worlds, plan.device, plan.network)


def make_player(
    policy: Policy | Choices,
    config: RunConfig,
    registry: Registry,
    decoding: RolloutConfig | EvalConfig,
    on_note: Callable[[str], None] = lambda text: None,
    watch: DrawWatch | None = None,
) -> Player:
    """What plays episodes with a policy; the arguments are those of `drivers.make_driver`."""
    if isinstance(policy, Choices):
        return ChoiceDriver(Chooser(policy, decoding.temperature), limits_of(config))
    return make_driver(policy, config, registry, decoding, on_note, watch)
