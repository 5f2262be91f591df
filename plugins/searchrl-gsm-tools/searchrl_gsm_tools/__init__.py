"""Grade-school word problems with a calculator: an environment without any search."""

from searchrl import hookimpl
from searchrl_gsm_tools.calculator import CALCULATOR

PLUGIN_API = 2


@hookimpl
def register_envs(register):
    """`gsm_tools`, to be played through the protocol that offers its tool."""
    register(
        "gsm_tools",
        "searchrl_gsm_tools.env:GsmTools",
        protocol="tool-call",
        tools=[CALCULATOR],
        expert="searchrl_gsm_tools.env:Expert",
        description="word problems of one to three steps, with a calculator",
    )
