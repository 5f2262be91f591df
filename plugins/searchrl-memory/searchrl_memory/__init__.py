"""A memory for agents: texts of their own, and procedures that somebody wrote. Only hooks."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_wrappers(register: Register) -> None:
    """Offer `memory`: the tools `remember`, `recall` and `procedure` in any environment."""
    register(
        "memory",
        "searchrl_memory.env:MemoryEnv",
        description="tools that keep texts and find them again, and procedures from a folder",
    )


@hookimpl
def register_commands(register: Register) -> None:
    """Offer a look at a folder of procedures."""
    register(
        "sop",
        "searchrl_memory.command:sop",
        description="Check a folder of procedures (SOPs), or find the one for a situation.",
    )
