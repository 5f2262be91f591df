"""Retrieval control: an agent that decides how to search. Hooks, and an id of Gymnasium.

After `import searchrl_control`, `gymnasium.make("searchrl/RetrievalControl-v0")` works; without the
import, `gymnasium.make("searchrl_control:searchrl/RetrievalControl-v0")` does.
"""

import gymnasium

from searchrl import Register, hookimpl

PLUGIN_API = 2

GYM_ID = "searchrl/RetrievalControl-v0"


@hookimpl
def register_envs(register: Register) -> None:
    """`retrieval-control`, in words."""
    register(
        "retrieval-control",
        "searchrl_control.environment.env:make_env",
        protocol="act",
        reward="env",
        description="decide how a question is searched: search, narrow, broaden, end",
    )


@hookimpl
def register_rewards(register: Register) -> None:
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
        description="Train and compare agents that decide how to search.",
    )


if GYM_ID not in gymnasium.registry:
    gymnasium.register(GYM_ID, entry_point="searchrl_control.environment.env:RetrievalControlEnv")
