"""Rows of chat, code and function calling as tasks; what a mixture of tasks forgets."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_commands(register: Register) -> None:
    """What became of every task of a mixture."""
    register(
        "forgetting",
        "searchrl_tasks.forgetting:forgetting",
        description="Name the tasks of a mixture that a run forgot.",
    )
