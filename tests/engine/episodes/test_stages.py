"""Which stage is in force at a step, what the prompts are then, and how a resumed run finds out."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.engine.episodes.curriculum import Curriculum
from searchrl.engine.episodes.prompts import PromptStream
from searchrl.engine.episodes.world import TaskWorld, make_worlds
from searchrl.engine.figures.metrics import curriculum_metrics
from searchrl.errors import ConfigError
from searchrl.plugins import Registry

LEVELS = {"env": "toy-levels", "reward": "em"}


@pytest.fixture
def worlds_of(toy_registry: Registry) -> Any:
    def make(*tasks: dict[str, Any]) -> list[TaskWorld]:
        return make_worlds(build_config({"tasks": list(tasks)}), toy_registry)

    return make


def waiting(*stages: tuple[str, float], first: float = 1.0) -> list[dict[str, Any]]:
    return [{"weight": first}, *({"when": when, "weight": weight} for when, weight in stages)]


def played(world: TaskWorld, *scores: float | None, name: str = "em") -> list[Any]:
    """Rollouts of a world with these scores of one component; None: it could not score."""
    made = []
    for score in scores:
        scored = SimpleNamespace(reward=score, scores={} if score is None else {name: score})
        made.append(SimpleNamespace(world=world, scored=scored))
    return made


def unscored(world: TaskWorld, score: float) -> Any:
    """A rollout whose reward could not be told, though one component could score it."""
    scored = SimpleNamespace(reward=None, scores={"em": score})
    return SimpleNamespace(world=world, scored=scored)


def run(curriculum: Curriculum, step: int, rollouts: list[Any]) -> list[str]:
    begun = curriculum.look(step)
    curriculum.take_in(rollouts)
    return begun


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
    assert Curriculum(worlds).look(0) == [] and Curriculum(worlds).state() == {}


def test_weights_that_never_change_draw_what_they_always_drew(worlds_of: Any) -> None:
    """The prompts of runs made before there were curricula."""
    worlds = worlds_of({"env": "toy", "weight": 3.0}, {"env": "plain", "reward": "env"})
    drawn = "".join(str(worlds.index(r.world)) for r in PromptStream(worlds, 0, 40, 1).requests(1))
    assert drawn == "0001000001001000000000011000000000111000"


def test_a_condition_wants_five_steps_and_stays_true(worlds_of: Any) -> None:
    (world,) = worlds_of({"env": "toy", "weight": waiting(("em>0.5", 0.25))})
    curriculum = Curriculum([world])
    for step in range(5):  # the mean is 1 from the first step on
        assert run(curriculum, step, played(world, 1.0, 1.0)) == []
        assert curriculum.weights(step) == [1.0]
    assert curriculum.look(5) == [
        "step 6: tasks.0.weight is 0.25 from here on (em>0.5: 1 in the last 5 steps)"
    ]
    curriculum.take_in(played(world, 0.0))
    for step in range(6, 20):  # what comes later changes nothing
        assert run(curriculum, step, played(world, 0.0)) == []
        assert curriculum.weights(step) == [0.25]
    assert [curriculum.weights(step) for step in (4, 5)] == [[1.0], [0.25]]
    assert curriculum.begun == {"tasks.0.weight": [5]}


def test_the_mean_is_that_of_all_rollouts_of_the_last_five_steps(worlds_of: Any) -> None:
    (world,) = worlds_of({"env": "toy", "weight": waiting(("em>=0.5", 0.5))})
    curriculum = Curriculum([world])
    for step in range(10):
        # From step 5 on: 3 of 4 rollouts in one step, 0 of 1 in the others: 3 of 8 then 3 of 7 …
        scores = (1.0, 1.0, 1.0, 0.0) if step == 6 else (0.0,) if step < 9 else (1.0, 1.0, None)
        rollouts = [*played(world, *scores), unscored(world, 1.0), unscored(world, 1.0)]
        assert run(curriculum, step, rollouts) == []
    # Steps 5 to 9: 0/1 + 3/4 + 0/1 + 0/1 + 2/2 (one could not be scored): 5 of 9.
    assert len(curriculum.look(10)) == 1


def test_what_was_not_played_has_no_mean(worlds_of: Any) -> None:
    first, second = worlds_of(
        {"env": "toy"}, {"env": "plain", "reward": "env", "weight": waiting(("em<2", 2.0))}
    )
    curriculum = Curriculum([first, second])
    for step in range(12):
        assert run(curriculum, step, played(first, 1.0)) == []
    assert curriculum.weights(11) == [1.0, 1.0]


def test_a_task_can_wait_for_another_and_both_change_at_once(worlds_of: Any) -> None:
    easy, hard = worlds_of(
        {"env": "toy", "weight": waiting(("em>0.8", 0.1))},
        {"env": "toy-levels", "weight": waiting(("tasks.0.em>0.8", 1.0), first=0.0)},
    )
    curriculum = Curriculum([easy, hard])
    stream = PromptStream([easy, hard], 0, 8, 1, curriculum)
    for step in range(6):
        curriculum.look(step)
        worlds = {id(r.world) for r in stream.requests(step + 1)}
        assert worlds == ({id(easy)} if step < 5 else {id(easy), id(hard)}) or step == 5
        curriculum.take_in(played(easy, 1.0, 0.9))
    assert curriculum.begun == {"tasks.0.weight": [5], "tasks.1.weight": [5]}
    assert curriculum.weights(4) == [1.0, 0.0] and curriculum.weights(5) == [0.1, 1.0]
    later = Counter(r.world is hard for step in range(6, 20) for r in stream.requests(step + 1))
    assert later[True] > later[False]


def test_a_stage_is_judged_by_its_own_steps(worlds_of: Any) -> None:
    """What was played on `easy` says nothing about `normal`."""
    stages = [{"difficulty": "easy"}]
    stages += [{"when": "em>0.8", "difficulty": level} for level in ("normal", "hard")]
    (world,) = worlds_of(LEVELS | {"difficulty": stages})
    curriculum = Curriculum([world])
    for step in range(20):
        curriculum.look(step)
        # Right on easy, wrong for the first seven steps on normal, then right.
        curriculum.take_in(played(world, float(step < 5 or step >= 12)))
    assert curriculum.begun == {"tasks.0.difficulty": [5, 17]}


def test_whichever_comes_first(worlds_of: Any) -> None:
    stages = [{"weight": 1}, {"from_step": 8, "when": "em>0.8", "weight": 2}]
    for score, begun in ((1.0, 5), (0.0, 8)):
        (world,) = worlds_of({"env": "toy", "weight": stages})
        curriculum = Curriculum([world])
        told = [line for step in range(10) for line in run(curriculum, step, played(world, score))]
        assert curriculum.begun == {"tasks.0.weight": [begun]}
        because = " (em>0.8: 1 in the last 5 steps)" if begun == 5 else ""
        assert told == [f"step {begun + 1}: tasks.0.weight is 2.0 from here on{because}"]


def test_at_its_step_a_stage_begins_though_one_before_it_still_waits(worlds_of: Any) -> None:
    stages = [{"weight": 1}, {"when": "em>0.8", "weight": 2}, {"from_step": 8, "weight": 3}]
    reward = [{"expr": "em"}, {"when": "em>0.8", "until_step": 8, "expr": "f1"}, {"expr": "format"}]
    for score, begun in ((1.0, 5), (0.0, 8)):
        (world,) = worlds_of({"env": "toy", "weight": stages, "reward": reward})
        curriculum = Curriculum([world])
        told = [line for step in range(10) for line in run(curriculum, step, played(world, score))]
        assert curriculum.begun == {"tasks.0.weight": [begun, 8], "tasks.0.reward": [begun, 8]}
        assert curriculum.weights(7) == [2.0 if begun == 5 else 1.0]
        assert curriculum.weights(8) == [3.0]
        assert str(world.scorer.schedule.at(9)) == "format"
        assert "step 9: tasks.0.weight is 3.0 from here on" in told


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


def test_a_reward_has_stages_under_conditions(worlds_of: Any) -> None:
    reward = [{"until_step": 9, "expr": "em"}, {"when": "reward>0.5", "expr": "0.5*em"}]
    for score, begun in ((1.0, 5), (0.0, 9)):
        (world,) = worlds_of({"env": "toy", "reward": reward})
        curriculum = Curriculum([world])
        for step in range(12):
            run(curriculum, step, played(world, score))
        schedule = world.scorer.schedule
        assert str(schedule.at(begun)) == "em" and str(schedule.at(begun + 1)) == "0.5*em"
        assert str(curriculum) == "tasks.0.reward: em, then 0.5*em after step 9 or once reward>0.5"


def test_a_metric_that_nobody_measures_is_refused(worlds_of: Any) -> None:
    worlds = worlds_of({"env": "toy", "weight": waiting(("emm>1", 2.0))})
    with pytest.raises(ConfigError, match=r"tasks.0.weight: the condition emm>1 needs 'emm', which "
                       r"env 'toy' does not measure. Did you mean 'em'"):  # fmt: skip
        Curriculum(worlds)


@pytest.mark.parametrize("stop", [2, 4, 5, 6, 9])
def test_a_resumed_curriculum_is_the_uninterrupted_one(
    worlds_of: Any, stop: int, tmp_path: Path
) -> None:
    """Before the condition became true, at the step, and after it; through JSON, as checkpoints."""
    tasks = (
        {"env": "toy", "weight": waiting(("em>0.5", 0.2), ("em>0.5", 0.6))},
        {"env": "toy-levels", "reward": [{"expr": "em"}, {"when": "tasks.0.em>0.5", "expr": "f1"}]}
        | {"difficulty": [{"difficulty": "easy"}, {"when": "em>0.9", "difficulty": "hard"}]},
    )

    def go(worlds: list[TaskWorld], steps: range, state: dict[str, Any]) -> list[Any]:
        curriculum = Curriculum(worlds)
        curriculum.restore(state)
        stream = PromptStream(worlds, 0, 6, 1, curriculum)
        seen = []
        for step in steps:
            curriculum.look(step)
            again = curriculum.state()
            assert curriculum.look(step) == [] or again == curriculum.state()
            asked = [
                (worlds.index(r.world), r.index, r.rng_keys) for r in stream.requests(step + 1)
            ]
            figures = curriculum.figures(step)
            expression = str(worlds[1].scorer.schedule.at(step + 1))
            scores = played(worlds[0], 0.1 * step, 0.7) + played(worlds[1], 1.0)
            curriculum.take_in(scores)
            state = curriculum.state()
            seen.append((step, asked, figures, expression, state))
        return seen

    whole = go(worlds_of(*tasks), range(16), {})
    last = whole[stop - 1][-1]
    resumed = go(worlds_of(*tasks), range(stop, 16), json.loads(json.dumps(last)))
    assert resumed == whole[stop:]
    began = whole[-1][-1]["begun"]
    assert began["tasks.0.weight"][0] > 4 and len(began["tasks.0.weight"]) == 2
    assert all(math.isfinite(step) for steps in began.values() for step in steps)


def test_what_a_step_was_sampled_with_is_logged(worlds_of: Any) -> None:
    worlds = worlds_of(
        {"env": "toy", "weight": {0: 0.2, 3: 0.5}}, LEVELS | {"difficulty": {0: "easy", 3: "hard"}}
    )
    figures = [curriculum_metrics(Curriculum(worlds), step) for step in (2, 3)]
    assert [one["toy/weight"]["value"] for one in figures] == [0.2, 0.5]
    assert [one["toy-levels/difficulty_stage"]["value"] for one in figures] == [1, 2]
    (alone,) = worlds_of(LEVELS | {"difficulty": {0: "easy", 3: "hard"}})
    assert list(curriculum_metrics(Curriculum([alone]), 0)) == ["difficulty_stage"]
