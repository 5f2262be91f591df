"""A policy of choices on the environment of `fixtures/arms.py`, and what plays with it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from searchrl.config import build_config
from searchrl.contracts import ChoiceSpace
from searchrl.engine.choosing.chooser import Chooser
from searchrl.engine.choosing.policy import Choices
from searchrl.engine.choosing.rollout import ChoiceDriver
from searchrl.engine.episodes.dialogue import Limits, RolloutRequest
from searchrl.engine.episodes.world import TaskWorld, make_worlds
from searchrl.engine.sampling.generator import mix_key
from searchrl.envs.choices import find_space
from searchrl.plugins import Registry, load_plugins

ARMS = str(Path(__file__).parents[2] / "fixtures" / "arms.py")
CPU = torch.device("cpu")
SETTINGS: dict[str, Any] = {"env": "arms", "policy": "gru", "plugins": [ARMS]}


@functools.cache
def registry() -> Registry:
    return load_plugins([ARMS], entry_points=False)


def make_world(**settings: Any) -> TaskWorld:
    return make_worlds(build_config({**SETTINGS, **settings}), registry())[0]


def make_policy(
    name: str = "gru", *, dtype: torch.dtype = torch.float32, **settings: Any
) -> Choices:
    space = find_space(make_world().ask(lambda env: env), "arms")
    return make_choices(space, name, dtype=dtype, **settings)


def make_choices(
    space: ChoiceSpace, name: str, *, dtype: torch.dtype = torch.float32, **settings: Any
) -> Choices:
    torch.manual_seed(0)
    entry = registry().get("policy", name)
    network = entry.make(space, **settings).to(dtype)
    for parameter in network.parameters():  # far from even, so that differences show
        with torch.no_grad():
            parameter.add_(torch.randn(parameter.shape, dtype=dtype) * 0.3)
    owner = str(entry.owner)
    return Choices(network, space, CPU, name, settings, owner, f"a new {name}")


def make_driver(policy: Choices, temperature: float = 1.0) -> ChoiceDriver:
    return ChoiceDriver(Chooser(policy, temperature), Limits(0, 0, 0, 30.0))


def requests(world: TaskWorld, count: int, size: int = 8, seed: int = 0) -> list[RolloutRequest]:
    return [
        RolloutRequest(
            f"group {index}",
            world,
            "train",
            index,
            tuple(mix_key(seed, 0, index, sample) for sample in range(size)),
        )
        for index in range(count)
    ]
