"""Chat, code and function calling from files of examples, their rewards, and what is forgotten."""

from searchrl import Register, hookimpl
from searchrl_tasks.made import TOOLS

PLUGIN_API = 2

REWARDS = {
    "code_syntax": "whether the answer's code is Python; it is parsed, never run",
    "code_style": "docstrings, type hints and length of the answer's code",
    "function_call": "share of what is right about the first call",
    "chat": "length and repetition of the answer",
    "auto": "the reward of the task's kind, named in every row",
    "published": "the published numbers for the task's kind",
}


@hookimpl
def register_envs(register: Register) -> None:
    """`examples`: recorded conversations as tasks."""
    register(
        "examples",
        "searchrl_tasks.env:Examples",
        protocol="tool-call",
        reward="format+auto",
        tools=TOOLS,
        expert="searchrl_tasks.env:Expert",
        description="chat, code and function calling from your own files, or made-up ones",
    )


@hookimpl
def register_rewards(register: Register) -> None:
    """Rewards of answers, by the kind of their task."""
    for name, description in REWARDS.items():
        register(name, f"searchrl_tasks.rewards:make_{name}", description=description)


@hookimpl
def register_commands(register: Register) -> None:
    """`searchrl forgetting`."""
    register(
        "forgetting",
        "searchrl_tasks.forgetting:forgetting",
        description="Name the tasks of a mixture that a run forgot.",
    )
