"""Agents: a model is trained through the agent you already have. Only hooks."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_wrappers(register: Register) -> None:
    """Offer `agent`: an agent acts, and the policy answers its requests."""
    register(
        "agent",
        "searchrl_agents.env:AgentEnv",
        description="your own agent acts in the environment, by an OpenAI-compatible address",
    )


@hookimpl
def register_rewards(register: Register) -> None:
    """Offer the reward that an agent gives itself."""
    register(
        "agent",
        "searchrl_agents.rewards:make_agent",
        description="the number that an agent posted; without one the episode is unscored",
    )
