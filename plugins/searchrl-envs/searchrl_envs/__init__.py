"""Environments of other libraries here, and ours there. Only hooks; libraries are imported late."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_envs(register: Register) -> None:
    """Offer a scheme for each library."""
    register(
        "reasoning-gym:",
        "searchrl_envs.reasoning:ReasoningGym",
        protocol="think-answer",
        reward="format+env",
        expert="searchrl_envs.reasoning:Expert",
        is_safe=bool,  # any name is one of the library
        description="tasks of one answer from a set of reasoning-gym: reasoning-gym:chain_sum",
    )
    register(
        "textworld:",
        "searchrl_envs.text_games:TextWorld",
        protocol="act",
        reward="env",
        expert="searchrl_envs.text_games:Expert",
        is_safe="searchrl_envs.text_games:is_kind",
        description="text games, of a file or made for each task: textworld:coin-collector",
    )


@hookimpl
def register_protocols(register: Register) -> None:
    """`think-answer`: for tasks where nothing is searched."""
    register("think-answer", "searchrl_envs.protocol:ThinkAnswer", description="think, then answer")
