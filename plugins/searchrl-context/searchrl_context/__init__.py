"""Contexts that are compacted, and the policy trained on what it writes of them. Only hooks."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_wrappers(register: Register) -> None:
    """Offer `context`: what a policy reads stays within a window."""
    register(
        "context",
        "searchrl_context.env:ContextEnv",
        description="keeps what the policy reads within a window: summaries, notes, or lines",
    )


@hookimpl
def register_envs(register: Register) -> None:
    """Offer a world in which an early page must be remembered."""
    register(
        "dossier",
        "searchrl_context.world:DossierEnv",
        expert="searchrl_context.world:Clerk",
        scripts={
            "habit": "searchrl_context.world:make_habit",
            "rule": "searchrl_context.world:make_rule",
        },
        reward="em",
        description="four seals in six long pages",
    )


@hookimpl
def register_rewards(register: Register) -> None:
    """Offer a component that takes rollouts with bad summaries out of training."""
    register(
        "intact",
        "searchrl_context.watching:make_intact",
        description="1; unscored where summaries are too many, empty or endless",
    )


@hookimpl
def register_alarms(register: Register) -> None:
    """Offer an alarm of summaries that say nothing any more."""
    register(
        "summary_collapse",
        "searchrl_context.watching:SummaryCollapse",
        description="summaries shrink to nothing, or are copied",
    )


@hookimpl
def register_algorithms(register: Register) -> None:
    """Offer the algorithms by the names of their papers."""
    for name, description in (
        ("resum", "ReSum-GRPO (2509.13313): all contexts have their rollout's advantage"),
        ("supo", "SUPO (2510.06727): the same, without rollouts that a limit ended"),
    ):
        register(name, f"searchrl_context.training:make_{name}", description=description)
