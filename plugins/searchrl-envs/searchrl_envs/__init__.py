"""Environments of other libraries here, and ours there. Only hooks; libraries are imported late."""

import lazy_loader

from searchrl import Register, hookimpl

PLUGIN_API = 2

# `vf-eval searchrl-envs` takes the task set from here.
__getattr__, _, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"verifiers_adapter": ["SearchRLTaskset"]}
)


@hookimpl
def register_envs(register: Register) -> None:
    """Offer a scheme for each library."""
    register(
        "reasoning-gym:",
        "searchrl_envs.reasoning:ReasoningGym",
        protocol="think-answer",
        reward="format+env",
        expert="searchrl_envs.base:Expert",
        is_safe=bool,  # any name is one of the library
        description="tasks of one answer from a set of reasoning-gym: reasoning-gym:chain_sum",
    )
    register(
        "openenv:",
        "searchrl_envs.openenv:OpenEnv",
        protocol="tool-call",
        reward="env",
        description="an environment behind a server of OpenEnv, by its address",
    )
    register(
        "textworld:",
        "searchrl_envs.text_games:TextWorld",
        protocol="act",
        reward="env",
        expert="searchrl_envs.text_games:Expert",
        check={"num_tasks": 1},  # a game takes seconds to make
        is_safe="searchrl_envs.text_games:KINDS.__contains__",
        description="text games, of a file or made for each task: textworld:coin-collector",
    )
    register(
        "verifiers:",
        "searchrl_envs.verifiers_env:VerifiersEnv",
        protocol="tool-call",
        reward="env",
        description="a task set of the library verifiers: verifiers:my_taskset",
    )
    register(
        "mcp:",
        "searchrl_envs.mcp_env:McpEnv",
        protocol="tool-call",
        expert="searchrl_envs.base:Expert",
        description="tasks of yours with the tools of an MCP server, by its command or address",
    )


@hookimpl
def register_protocols(register: Register) -> None:
    """`think-answer`: for tasks where nothing is searched."""
    register("think-answer", "searchrl_envs.protocol:ThinkAnswer", description="think, then answer")


@hookimpl
def register_commands(register: Register) -> None:
    """`searchrl mcp tasks`, and `serve-env`."""
    register("mcp", "searchrl_envs.mcp_tasks:mcp", description="Draft tasks for an MCP server.")
    register(
        "serve-env",
        "searchrl_envs.serve:serve_env",
        description="Serve an environment to others, as OpenEnv does.",
    )
