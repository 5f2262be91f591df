"""The `regulations` world: generated school handbooks and questions about them."""

from searchrl.envs.regulations.env import RegulationsEnv
from searchrl.envs.regulations.heuristics import make_two_search_regex
from searchrl.envs.regulations.questions import TASK_KINDS
from searchrl.envs.regulations.scripts import make_expert, make_passive

__all__ = [
    "TASK_KINDS",
    "RegulationsEnv",
    "make_expert",
    "make_passive",
    "make_two_search_regex",
]
