"""The `regulations` world: generated school handbooks and questions about them."""

from searchrl.envs.regulations.env import RegulationsEnv as RegulationsEnv
from searchrl.envs.regulations.heuristics import make_two_search_regex as make_two_search_regex
from searchrl.envs.regulations.scripts import make_expert as make_expert
from searchrl.envs.regulations.scripts import make_passive as make_passive
