"""Environments of other libraries here, and ours there. Only hooks; libraries are imported late."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_envs(register: Register) -> None:
    """Offer a scheme for each library."""
