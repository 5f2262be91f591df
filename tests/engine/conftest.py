"""Fixtures of the engine's tests: one thread, the toy world, a micro policy."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import device, same_bits  # noqa: F401
from engine_toy import TOY_PLUGIN, micro_policy
from qwen3_toy import SMALL, save_qwen3
from session_toy import MakeSession, toy_session

from searchrl.config import build_config
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.plugins import Registry, load_plugins
from searchrl.programs.setup.session import Session


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small only lose by a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def toy_registry() -> Registry:
    return load_plugins([str(TOY_PLUGIN)], strict=True)


MakeWorld = Callable[..., TaskWorld]


@pytest.fixture
def toy_world(toy_registry: Registry) -> Iterator[MakeWorld]:
    """`toy_world(env="toy", reward=…, reward_timeout_s=…, **env settings)` makes a world."""
    made: list[TaskWorld] = []

    def make(
        env: str = "toy",
        *,
        reward: str = "em",
        metrics: Sequence[str] = (),
        protocol: str = "think-search-answer",
        retriever: Any = "bm25",
        reward_timeout_s: float | None = None,
        **settings: Any,
    ) -> TaskWorld:
        config = build_config(
            {
                "env": {"name": env, **settings},
                "reward": reward,
                "protocol": {"name": protocol, "instruction": ""},
                "retriever": retriever,
                "rollout": {"reward_timeout_s": reward_timeout_s},
            },
            {"tasks": {"0": {"metrics": list(metrics)}}},
        )
        made.extend(make_worlds(config, toy_registry))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def short_world(toy_world: MakeWorld) -> TaskWorld:
    """Turns are ended by common letters, so episodes have several."""
    return toy_world(protocol="short-stops", retriever="random", reward="parity")


@pytest.fixture(scope="session")
def small_qwen3(micro_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the Qwen3 architecture, `qwen3_toy.SMALL`."""
    return save_qwen3(tmp_path_factory.mktemp("qwen3") / "m", micro_model, **SMALL)


@pytest.fixture
def policy(micro_model: Path) -> Policy:
    return micro_policy(micro_model)


@pytest.fixture
def make_session(micro_model: Path, toy_registry: Registry) -> Iterator[MakeSession]:
    """`make_session(**settings)` makes a session; see `train_toy.settings`."""
    with ExitStack() as stack:

        def make(**more: Any) -> Session:
            return stack.enter_context(toy_session(micro_model, toy_registry, **more))

        yield make
