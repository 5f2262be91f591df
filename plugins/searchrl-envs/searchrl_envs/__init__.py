"""Environments of other libraries here, and ours there. Only hooks; libraries are imported late."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_envs(register: Register) -> None:
    """Offer a scheme for each library."""
    register(
        "mcp:",
        "searchrl_envs.mcp_env:McpEnv",
        protocol="tool-call",
        expert="searchrl_envs.mcp_env:Expert",
        description="tasks of yours with the tools of an MCP server, by its command or address",
    )


@hookimpl
def register_commands(register: Register) -> None:
    """`searchrl mcp tasks`."""
    register("mcp", "searchrl_envs.mcp_tasks:mcp", description="Draft tasks for an MCP server.")
