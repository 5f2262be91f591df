"""Retrieval control: an agent that decides how to search. Hooks, and an id of Gymnasium.

After `import searchrl_control`, `gymnasium.make("searchrl/RetrievalControl-v0")` works; without the
import, `gymnasium.make("searchrl_control:searchrl/RetrievalControl-v0")` does.
"""

import gymnasium

from searchrl import hookimpl
from searchrl.hookspecs import Register, RegisterEnv, RegisterReward

PLUGIN_API = 2

GYM_ID = "searchrl/RetrievalControl-v0"


@hookimpl
def register_envs(register: RegisterEnv) -> None:
    """`retrieval-control`: a turn is the number of an action."""
    register(
        "retrieval-control",
        "searchrl_control.environment.factory:make_env",
        turns="choice",
        reward="env",
        description="decide how a question is searched: search, narrow, broaden, end",
    )


@hookimpl
def register_policies(register: Register) -> None:
    """Networks that decide, each with a critic."""
    register(
        "control-linear",
        "searchrl_control.policies.networks:make_linear",
        description="weights for every sign and action; sources share a scorer",
    )
    register(
        "control-mlp",
        "searchrl_control.policies.networks:make_mlp",
        description="the same with one hidden layer",
    )
    register(
        "control-gru",
        "searchrl_control.policies.networks:make_gru",
        description="the same with a memory of the episode",
    )


@hookimpl
def register_algorithms(register: Register) -> None:
    """PPO with a critic."""
    register(
        "control-ppo",
        "searchrl_control.learning.ppo:make_ppo",
        description="PPO with a critic: GAE, a clipped loss, a value loss",
    )


@hookimpl
def register_rewards(register: RegisterReward) -> None:
    """The published reward, by any judge."""
    register(
        "list_judge",
        "searchrl_control.environment.rewards:make_list_judge",
        description="what the judge says of the last list of an episode",
    )


@hookimpl
def register_commands(register: Register) -> None:
    """`searchrl control`; imported when it runs."""
    register(
        "control",
        "searchrl_control.commands.control:control",
        description="Compare agents that decide how to search, and make questions for them.",
    )


if GYM_ID not in gymnasium.registry:
    gymnasium.register(GYM_ID, entry_point="searchrl_control.environment.env:RetrievalControlEnv")
