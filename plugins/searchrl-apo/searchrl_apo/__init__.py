"""The command `apo`: an instruction that improves itself on training tasks. Only a hook."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_commands(register: Register) -> None:
    """Automatic prompt optimisation."""
    register(
        "apo",
        "searchrl_apo.command:apo",
        description="Improve the protocol's instruction on training tasks.",
    )
