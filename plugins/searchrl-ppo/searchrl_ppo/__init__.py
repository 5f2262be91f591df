"""PPO with a critic: a value head on the policy's hidden states. Only hooks."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_algorithms(register: Register) -> None:
    """`ppo`: advantages are those of a critic, not of a group."""
    register(
        "ppo",
        "searchrl_ppo.algorithm:make_ppo",
        description="PPO (Schulman 2017): GAE over turns or tokens, with a value head",
    )
