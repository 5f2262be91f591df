"""Which stage is in force at a step, and what the prompts are then."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.engine.metrics.metrics import curriculum_metrics
from searchrl.engine.rollout.curriculum import Curriculum
from searchrl.engine.rollout.prompts import PromptStream
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.errors import ConfigError
from searchrl.plugins import Registry

LEVELS = {"env": "toy-levels", "reward": "em"}


@pytest.fixture
def worlds_of(toy_registry: Registry) -> Any:
    def make(*tasks: dict[str, Any]) -> list[TaskWorld]:
        return make_worlds(build_config({"tasks": list(tasks)}), toy_registry)

    return make


def test_weights_follow_the_steps_and_prompts_follow_the_weights(worlds_of: Any) -> None:
    tasks = [
        {"env": "toy", "weight": {0: 0.2, 30: 0.5}},
        {"env": "plain", "reward": "env", "weight": {0: 0.4, 30: 0.25}},
        {"env": "toy-levels", "weight": {0: 0.4, 30: 0.25}},
    ]
    worlds = worlds_of(*tasks)
    stream = PromptStream(worlds, 0, 20, 1, Curriculum(worlds))
    for steps, shares in ((range(30), (0.2, 0.4, 0.4)), (range(30, 60), (0.5, 0.25, 0.25))):
        drawn = Counter(worlds.index(r.world) for step in steps for r in stream.requests(step + 1))
        for place, share in enumerate(shares):
            # 600 draws: four standard deviations are at most 49.
            assert abs(drawn[place] - 600 * share) < 49, (steps, place, drawn)
    # Any step can be asked for first, as a resumed run does, and refills have the same weights.
    other = PromptStream(worlds, 0, 20, 1, Curriculum(worlds))
    for refill in (0, 1):
        keys = [[r.rng_keys for r in s.requests(45, refill)] for s in (other, stream)]
        assert keys[0] == keys[1]
    refilled = Counter(
        worlds.index(r.world) for step in range(30, 60) for r in stream.requests(step + 1, 1)
    )
    assert abs(refilled[0] - 300) < 49
    begun = [Curriculum(worlds).begins(done) for done in (0, 29, 30)]
    assert begun[:2] == [[], []] and begun[2][0].startswith("step 31: tasks.0.weight is 0.5 ")


def test_weights_that_never_change_draw_what_they_always_drew(worlds_of: Any) -> None:
    """The prompts of runs made before there were curricula."""
    worlds = worlds_of({"env": "toy", "weight": 3.0}, {"env": "plain", "reward": "env"})
    drawn = "".join(str(worlds.index(r.world)) for r in PromptStream(worlds, 0, 40, 1).requests(1))
    assert drawn == "0001000001001000000000011000000000111000"


def test_the_difficulty_changes_and_every_level_has_its_own_tasks(worlds_of: Any) -> None:
    (world,) = worlds_of(LEVELS | {"difficulty": {0: "easy", 3: "hard", 6: "easy"}})
    stream = PromptStream([world], 0, 6, 1, Curriculum([world]))
    for step in range(9):
        for request in stream.requests(step + 1):
            level = "easy" if step < 3 or step >= 6 else "hard"
            assert request.world is world and request.home is world.levels[level]
            assert request.index is not None
            assert (
                request.index < request.home.num_tasks("train") == (22 if level == "easy" else 44)
            )
    # Evaluations play the last one, and the notes of a task say its difficulty.
    assert world is world.levels["easy"] and world.config.env.settings == {"difficulty": "easy"}
    task = world.levels["hard"].look_at("train", 30)
    assert task is not None and task.difficulty == "hard"


def test_an_environment_without_difficulties_is_refused(worlds_of: Any) -> None:
    with pytest.raises(ConfigError, match="'difficulty'"):
        worlds_of({"env": "corpus", "difficulty": {0: "easy", 5: "hard"}})


def test_what_a_step_was_sampled_with_is_logged(worlds_of: Any) -> None:
    worlds = worlds_of(
        {"env": "toy", "weight": {0: 0.2, 3: 0.5}}, LEVELS | {"difficulty": {0: "easy", 3: "hard"}}
    )
    figures = [curriculum_metrics(Curriculum(worlds), step) for step in (2, 3)]
    assert [one["toy/weight"]["value"] for one in figures] == [0.2, 0.5]
    assert [one["toy-levels/difficulty_stage"]["value"] for one in figures] == [1, 2]
    (alone,) = worlds_of(LEVELS | {"difficulty": {0: "easy", 3: "hard"}})
    assert list(curriculum_metrics(Curriculum([alone]), 0)) == ["difficulty_stage"]
