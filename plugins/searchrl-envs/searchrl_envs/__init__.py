"""Environments of other libraries here, and ours there. Only hooks; libraries are imported late."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_envs(register: Register) -> None:
    """Offer a scheme for each library."""
    register(
        "openenv:",
        "searchrl_envs.openenv:OpenEnv",
        protocol="tool-call",
        reward="env",
        description="openenv:URL, an environment behind a server of OpenEnv",
    )


@hookimpl
def register_commands(register: Register) -> None:
    """Offer `serve-env`."""
    register(
        "serve-env",
        "searchrl_envs.serve:serve_env",
        description="Serve an environment to others, as OpenEnv does.",
    )
