"""What the tests share: episodes on short pages, played by a script, with the tiny tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import AutoTokenizer

from searchrl import load_plugins
from searchrl.config import RunConfig, build_config
from searchrl.config.packaged import EMBEDDED, find_packaged
from searchrl.engine.model.rendering import Renderer
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import limits_of, make_scripted_driver
from searchrl.engine.rollout.rollout import Rollout
from searchrl.engine.rollout.worlds import make_worlds

CODEC = Renderer(AutoTokenizer.from_pretrained(find_packaged(EMBEDDED)))
REGISTRY = load_plugins(["searchrl_context"])
WINDOW = 560


class Talker:
    """Says the given turns, one after the other."""

    def __init__(self, turns: Sequence[str]) -> None:
        self.act = lambda _, left=iter(turns): next(left)


def config_of(mode: str, **settings: Any) -> RunConfig:
    given: dict[str, Any] = {
        "env": {"name": "dossier", "articles": 4},
        "reward": "em+0.5*format+intact-1",
        "wrapper": {"name": "context", "mode": mode, "window": WINDOW, **settings},
        "plugins": ["searchrl_context"],
        "model": {"instructions": False},
        "rollout": {"max_turn_tokens": 100, "max_observation_tokens": 200},
    }
    return build_config(given)


def played(mode: str = "summary", turns: Sequence[str] = (), **settings: Any) -> Rollout:
    """An episode of the clerk, or of a talker."""
    config = config_of(mode, **settings)
    (world,) = make_worlds(config, REGISTRY)
    script = (lambda *_: Talker(turns)) if turns else world.script("expert")
    driver = make_scripted_driver(config, CODEC, limits_of(config))
    (group,) = driver.run([RolloutRequest("g", world, "test", 0, (1,), script=script)])
    world.close()
    (rollout,) = group.rollouts
    assert rollout.episode.failure is None
    return rollout
