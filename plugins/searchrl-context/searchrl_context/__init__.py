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
        scripts={"habit": "searchrl_context.world:make_habit"},
        reward="em",
        description="four seals in six long pages",
    )
