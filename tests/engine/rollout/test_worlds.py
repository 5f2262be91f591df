"""Task worlds: which tasks a split has, what they are scored with, and what is closed with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.errors import ConfigError
from searchrl.plugins import Registry, load_plugins


def test_the_last_training_tasks_validate(toy_world: Any) -> None:
    world = toy_world()
    counts = [world.num_tasks(split) for split in ("train", "validation", "test")]
    assert counts == [44, 4, 48]
    places = [world.locate(split, 3) for split in ("train", "validation", "test")]
    assert places == [("train", 3), ("train", 47), ("test", 3)]
    task = world.look_at("validation", 0)
    assert (task.split, task.index) == ("train", 44)


@pytest.mark.parametrize(("count", "said"), [(0, "has no tasks in split 'train'"), (1, "held out")])
def test_a_single_task_is_not_held_out_and_none_is_refused(
    toy_world: Any, monkeypatch: pytest.MonkeyPatch, count: int, said: str
) -> None:
    world = toy_world()
    monkeypatch.setattr(type(world.ask(lambda env: env.unwrapped)), "num_tasks", lambda *_: count)
    with pytest.raises(ConfigError, match=said):
        world.num_tasks("validation")
    if count:
        assert world.num_tasks("train") == 1 and not world.can_validate
        monkeypatch.setattr(type(world.ask(lambda env: env.unwrapped)), "num_tasks", lambda *_: 2)
        assert world.can_validate


def test_it_closes_what_is_idle_once_that_of_its_levels_too(toy_world: Any) -> None:
    worlds, closed = [toy_world(), toy_world()], list[Any]()
    worlds[1].levels = {"easy": worlds[0], "hard": worlds[1]}
    for world in worlds:
        world.ask(lambda env: setattr(env, "close", lambda env=env: closed.append(env)))
    for _ in range(2):
        worlds[1].close()
    assert len(closed) == len({*map(id, closed)}) == 2 and not worlds[0]._idle + worlds[1]._idle


def test_a_task_is_scored_with_its_reward_its_metrics_and_its_limit(toy_registry: Registry) -> None:
    env = {"env": "toy", "reward": "em+format", "metrics": ["searches", "f1"], "retriever": "bm25"}
    limits = {"rollout": {"reward_timeout_s": 7, "env_timeout_s": 5}}
    (world,) = make_worlds(build_config({"tasks": [env]}, limits), toy_registry)
    assert world.scorer.names == ("em", "format", "searches", "f1")
    assert (world.scorer.timeout_s, world.timeout_s) == (7, 5)
    game = {"env": "gym:FrozenLake-v1", "metrics": ["searches", "f1"]}
    (plain,) = make_worlds(build_config({"tasks": [game]}), toy_registry)
    assert plain.scorer.names == ("env", "f1"), "it has no search"
    plain.close()
    world.close()


def test_tasks_share_the_lock_of_what_takes_one_call_at_a_time() -> None:
    registry = load_plugins([str(Path(__file__).parents[3] / "benchmarks" / "slow_tools.py")])
    task = {"env": "slow", "retriever": "slow-alone", "reward": "slow_reward_alone+slow_reward"}
    worlds = make_worlds(build_config({"tasks": [task, task]}), registry)
    (alone,) = worlds[0].scorer.alone
    assert alone.startswith("reward 'slow_reward_alone'")
    first, second = (one.ask(lambda env: env.unwrapped._indexes) for one in worlds)
    assert first._factory.lock is second._factory.lock is not None
    for world in worlds:
        world.close()


def test_a_wrapper_gets_the_retriever_that_a_user_names(tmp_path: Path) -> None:
    (tmp_path / "looking.py").write_text(
        "import gymnasium\nfrom searchrl import hookimpl\n"
        "from searchrl.contracts import Passage, RetrieverFactory\n"
        "class Looking(gymnasium.Wrapper):\n"
        "    def __init__(self, env, *, inner: RetrieverFactory):\n"
        "        super().__init__(env)\n"
        "        self.notes = inner([Passage('a', 'park')]).search(['park'], 1)[0]\n"
        "@hookimpl\ndef register_wrappers(register):\n    register('looking', Looking)\n",
        "utf-8",
    )
    config = build_config({"wrapper": {"name": "looking", "inner": {"name": "bm25", "k1": 1}}})
    (world,) = make_worlds(config, load_plugins([str(tmp_path / "looking.py")]))
    assert "text='park'" in world.notes[0]
    world.close()
