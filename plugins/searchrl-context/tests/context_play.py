"""Scripted play with a real tokenizer; as a plugin, a wrapper that takes any text as a summary."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from searchrl_context.env import ContextEnv
from transformers import AutoTokenizer

from searchrl import Register, hookimpl, load_plugins
from searchrl.config import build_config
from searchrl.config.packaged import EMBEDDED, find_packaged
from searchrl.core.trajectory import Origin
from searchrl.engine.model.rendering import Renderer
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import limits_of
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.engine.sampling.generator import FinishedTurn
from searchrl.engine.sampling.scripted import ScriptedGenerator

CODEC = Renderer(AutoTokenizer.from_pretrained(find_packaged(EMBEDDED)))
Sampled = type("Sampled", (RolloutRequest,), {"origin": Origin.SAMPLED})
"""Scripted play that counts as sampled."""


class Sampler(ScriptedGenerator):
    """Gives each token a log-prob, and remembers what each script said."""

    said: dict[int, list[int]]

    def poll(self) -> list[FinishedTurn]:
        turns = [replace(one, logps=(-0.5,) * len(one.ids)) for one in super().poll()]
        for turn in turns:
            self.said.setdefault(id(self._dialogues[turn.handle][0]), []).extend(turn.ids)
        return turns


def play(
    mode: str,
    *turns: str,
    window: int = 560,
    script: str = "expert",
    count: int = 1,
    observation: int = 200,
    **more: Any,
) -> tuple[list[Rollout], list[list[int]]]:
    """Two rollouts of so many tasks with short pages, and what was said; `turns`: one that says so.

    No context is longer than the window.
    """
    given = {
        "env": {"name": "dossier", "articles": 4},
        "reward": "em+0.5*format+intact-1",
        "wrapper": {"name": "context", "mode": mode, "window": window, "explain": False, **more},
        "model": {"instructions": False},
        "rollout": {"max_turn_tokens": 100, "max_observation_tokens": observation},
    }
    config = build_config(given)
    (world,) = make_worlds(config, load_plugins(["searchrl_context"]))
    generator, left = Sampler(CODEC), iter(turns)
    generator.said = {}
    talker: Any = lambda *_: SimpleNamespace(act=lambda _: next(left))  # noqa: E731
    own: Any = {"script": talker if turns else world.script(script)}
    asked = [
        Sampled(f"{mode}{n}", world, "test", n, (n, n + 1)[: 1 if turns else 2], **own)
        for n in range(count)
    ]
    groups = RolloutDriver(generator, CODEC, limits_of(config)).run(asked)
    world.close()
    rollouts = [one for group in groups for one in group.rollouts]
    assert not [one.episode.failure for one in rollouts if one.episode.failure]
    segments = [segment for one in rollouts for segment in one.trajectory.segments]
    assert all(0 < len(segment) <= window for segment in segments)
    return rollouts, [*generator.said.values()]


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
