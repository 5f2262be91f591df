"""Environments of other libraries here, and ours there. Only hooks; libraries are imported late."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_envs(register: Register) -> None:
    """Offer a scheme for each library."""


@hookimpl
def register_protocols(register: Register) -> None:
    """`think-answer`: for tasks where nothing is searched."""
    register("think-answer", "searchrl_envs.protocol:ThinkAnswer", description="think, then answer")
