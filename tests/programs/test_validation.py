"""What chooses a checkpoint is not what measures it, and neither is ever trained on."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from train_toy import TOY_PLUGIN, settings

from searchrl.config import build_config
from searchrl.config.sft import SftStage
from searchrl.engine.model.loading import TINY_PATH
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.prompts import PromptStream
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.envs.splits import num_held_out
from searchrl.plugins import load_plugins
from searchrl.programs.demonstrations import Demonstrator
from searchrl.programs.setup.planning import plan_run
from searchrl.programs.train import train
from searchrl.run_folder import Run

pytestmark = pytest.mark.usefixtures("threads_restored")


def toy_worlds(*names: str) -> list[TaskWorld]:
    tasks = [{"env": name, "reward": "env"} for name in names]
    config = build_config({"tasks": tasks, "plugins": [str(TOY_PLUGIN)]})
    return make_worlds(config, load_plugins(config.plugins))


def played(run: Run, phase: str) -> set[tuple[str, int]]:
    return {(row["task"]["split"], row["task"]["index"]) for row in run.rollouts(phase)}


@pytest.mark.thorough
class TestRun:
    def test_a_single_task_is_trained_on_and_nothing_is_best(
        self, micro_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(TaskWorld, "_num_own_tasks", lambda world, split: 1)
        run = train(settings(micro_model, tmp_path / "run", max_steps=3))
        assert played(run, "train") == {("train", 0)}
        assert run.summary["best"] is None and not played(run, "during")


class TestTasks:
    @pytest.mark.parametrize(
        ("total", "held_out"),
        [(1, 0), (2, 1), (19, 1), (20, 2), (640, 64), (9000, 64)],
    )
    def test_one_in_ten_is_held_out_and_training_is_never_empty(self, total: int, held_out: int):
        assert num_held_out(total) == held_out < total

    @pytest.mark.parametrize("total", [2, 1000])
    def test_no_training_task_is_a_validation_task(
        self, monkeypatch: pytest.MonkeyPatch, total: int
    ):
        (world,) = toy_worlds("toy")
        monkeypatch.setattr(TaskWorld, "_num_own_tasks", lambda world, split: total)
        tasks = [
            world.locate(split, index)
            for split in ("train", "validation")
            for index in range(world.num_tasks(split))
        ]
        assert sorted(tasks) == [("train", index) for index in range(total)]
        assert world.num_tasks("test") == total and world.locate("test", 1) == ("test", 1)

    def test_neither_mixtures_nor_refills_meet_them(self):
        worlds = toy_worlds("toy", "plain")
        stream = PromptStream(worlds, 0, 6, 1)
        requests = [r for step in range(60) for n in range(3) for r in stream.requests(step + 1, n)]
        for world in worlds:
            drawn = {r.reset_options["index"] for r in requests if r.world is world}
            assert drawn == set(range(44))

    def test_demonstrations_are_of_training_tasks(self, micro_model: Path):
        config = build_config(
            settings(micro_model, Path("unused"), task={"protocol": "think-search-answer"})
        )
        worlds = make_worlds(config, load_plugins(config.plugins))
        policy = plan_run({"model": {"name": str(TINY_PATH)}}).load_policy(trainable=False)
        stage = SftStage(batch_size=300)
        shown = Demonstrator(config, worlds, policy, None)(stage, 0)
        assert {d.trajectory.task_id for d in shown} == {f"toy-train-{i}" for i in range(44)}

    def test_demonstrated_tasks_are_as_many_and_as_often_as_the_settings_say(
        self, micro_model: Path
    ):
        toy = {"env": "toy", "protocol": "think-search-answer", "reward": "env"}
        weights = ({0: 3.0, 5: 0.0}, {0: 1.0, 5: 1.0})
        tasks = [{**toy, "weight": weight} for weight in weights]
        settings = {"tasks": tasks, "plugins": [str(TOY_PLUGIN)], "sft": {"num_tasks": 4}}
        config = build_config(settings)
        worlds = make_worlds(config, load_plugins(config.plugins))
        policy = plan_run({"model": {"name": str(TINY_PATH)}}).load_policy(trainable=False)
        demonstrate, stage = Demonstrator(config, worlds, policy, None), SftStage(batch_size=400)
        first, later = demonstrate(stage, 0), demonstrate(stage, 5)
        assert {d.trajectory.task_id for d in first} == {f"toy-train-{i}" for i in range(4)}
        of_second = {id(d) for d in later}
        assert len({id(d) for d in first}) == 8 and len(of_second) == 4, "each is played once"
        assert 70 <= sum(id(d) in of_second for d in first) <= 130

    @given(st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3))
    def test_seeds_of_two_splits_are_never_the_same(self, keys: list[int]):
        splits = ("train", "validation", "test")
        seeds = [
            RolloutRequest("g", None, split, None, (key,)).env_seed  # type: ignore[arg-type]
            for split, key in zip(splits, keys, strict=True)
        ]
        assert 0 <= seeds[0] < seeds[1] < seeds[2] < 2**31
