"""Scripted play with a real tokenizer; as a plugin, a wrapper that takes any text as a summary."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from searchrl_context.env import ContextEnv
from transformers import AutoTokenizer

from searchrl import Register, hookimpl, load_plugins
from searchrl.config import build_config
from searchrl.config.packaged import EMBEDDED, find_packaged
from searchrl.engine.model.rendering import Renderer
from searchrl.engine.rollout.drivers import limits_of
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.engine.sampling.scripted import ScriptedGenerator

CODEC = Renderer(AutoTokenizer.from_pretrained(find_packaged(EMBEDDED)))
WINDOW = 560


def played(ask: Callable[[Any], Any], generator: Any = None, **wrapper: Any) -> list[Rollout]:
    """Episodes on short pages; `ask` makes the requests for a world."""
    given = {
        "env": {"name": "dossier", "articles": 4},
        "reward": "em+0.5*format+intact-1",
        "wrapper": {"name": "context", "window": WINDOW, **wrapper},
        "model": {"instructions": False},
        "rollout": {"max_turn_tokens": 100, "max_observation_tokens": 200},
    }
    config = build_config(given)
    (world,) = make_worlds(config, load_plugins(["searchrl_context"]))
    driver = RolloutDriver(generator or ScriptedGenerator(CODEC), CODEC, limits_of(config))
    groups = driver.run(ask(world))
    world.close()
    assert not [one for group in groups for one in group.rollouts if one.episode.failure]
    return [one for group in groups for one in group.rollouts]


def talker(turns: Sequence[str]) -> Any:
    """A script that says the turns, one after the other."""
    left = iter(turns)
    return lambda *_: SimpleNamespace(act=lambda _: next(left))


class Jotting(ContextEnv):
    """Takes every turn that was asked for as a summary: the tiny model writes none by itself."""

    def step(self, action: Any) -> Any:
        if self._waiting is None:
            return super().step(action)
        made = super().step(f"<summary>{action}</summary>")
        if [*Path(os.environ.get("KILL_BEHIND", "/dev/null")).glob("checkpoints/*")]:
            os.kill(os.getpid(), signal.SIGKILL)
        return made


@hookimpl
def register_wrappers(register: Register) -> None:
    register("jotting", Jotting, description="keeps whatever is written")
