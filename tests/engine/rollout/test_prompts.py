"""Which prompts a step gets: a pure function of (seed, step), so a resumed run skips none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchrl.config import build_config
from searchrl.engine.metrics.metrics import curriculum_metrics
from searchrl.engine.rollout.curriculum import Curriculum
from searchrl.engine.rollout.prompts import PromptStream, _permuted
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import ConfigError
from searchrl.plugins import Registry

NUM_TASKS = 44  # of the 48 that the toy env has; the last four are held out


def asked(stream: PromptStream, step: int) -> list[tuple[Any, ...]]:
    return [
        (r.group_id, r.world.name, r.split, r.index, r.rng_keys, r.step)
        for r in stream.requests(step + 1)
    ]


def test_any_step_can_be_asked_for_in_any_order(toy_world: Any):
    worlds = [toy_world(), toy_world("plain", reward="env")]
    straight = PromptStream(worlds, 3, 4, 2)
    expected = [asked(straight, step) for step in range(30)]
    resumed = PromptStream(worlds, 3, 4, 2)
    assert [asked(resumed, step) for step in range(17, 30)] == expected[17:]
    assert asked(resumed, 2) == expected[2]
    assert asked(PromptStream(worlds, 4, 4, 2), 0) != expected[0]
    assert {(one[2], one[-1]) for one in expected[17]} == {("train", 18)}


def test_every_task_comes_once_per_epoch_and_epochs_differ(toy_world: Any):
    stream = PromptStream([toy_world()], 0, 4, 1)
    epochs = [
        [r.index for step in range(11 * epoch, 11 * epoch + 11) for r in stream.requests(step + 1)]
        for epoch in range(3)
    ]
    for epoch in epochs:
        assert sorted(epoch) == list(range(NUM_TASKS))
    assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != sorted(epochs[0])


def test_group_ids_and_keys_are_unique_over_the_run(toy_world: Any):
    stream = PromptStream([toy_world()], 0, 6, 5)
    requests = [r for step in range(40) for r in stream.requests(step + 1)]
    assert len({r.group_id for r in requests}) == len(requests)
    keys = [key for r in requests for key in r.rng_keys]
    assert len(set(keys)) == len(keys) == 40 * 6 * 5
    # One task in two epochs is two prompt instances: never one group.
    assert len({r.index for r in requests}) == NUM_TASKS < len(requests)


def test_worlds_are_mixed_by_weight_and_each_keeps_its_own_order(toy_world: Any):
    heavy, light = toy_world(), toy_world("plain", reward="env")
    heavy.config = heavy.config.model_copy(update={"weight": 3.0})
    stream = PromptStream([heavy, light], 0, 10, 1)
    requests = [r for step in range(120) for r in stream.requests(step + 1)]
    counts = Counter(r.world.name for r in requests)
    # 1200 draws at 3/4: standard deviation 15.
    assert abs(counts["toy"] - 900) < 60
    for world in (heavy, light):
        own = [r.index for r in requests if r.world is world]
        for start in range(0, len(own) - NUM_TASKS, NUM_TASKS):
            assert sorted(own[start : start + NUM_TASKS]) == list(range(NUM_TASKS))


@given(st.integers(1, 300), st.integers(0, 2**64 - 1))
def test_permutation_is_one(total: int, key: int):
    assert sorted(_permuted(i, total, key) for i in range(total)) == list(range(total))


@given(st.lists(st.integers(0, 2**70), min_size=1, max_size=5))
def test_mix_key_is_a_64_bit_number_and_depends_on_every_part(parts: list[int]):
    key = mix_key(*parts)
    assert 0 <= key < 2**64
    for i in range(len(parts)):
        assert mix_key(*parts[:i], parts[i] ^ 1, *parts[i + 1 :]) != key
    assert mix_key(*parts, 0) != key


class TestRefills:
    """Prompts that replace others (dynamic sampling)."""

    def test_they_are_a_function_of_step_and_refill(self, toy_world: Any):
        worlds = [toy_world(), toy_world("plain", reward="env")]

        def ask(stream: PromptStream, step: int, refill: int, places: list[int]) -> list[Any]:
            requests = stream.requests(step + 1, refill, places)
            return [(r.group_id, r.world.name, r.index, r.rng_keys) for r in requests]

        straight = PromptStream(worlds, 3, 4, 2)
        cells = [(step, refill) for step in range(6) for refill in range(3)]
        expected = {cell: ask(straight, *cell, [0, 1, 2, 3]) for cell in cells}
        resumed = PromptStream(worlds, 3, 4, 2)
        for cell in reversed(cells):
            assert ask(resumed, *cell, [3, 1]) == [expected[cell][3], expected[cell][1]]
        # Not those of the step, nor of the refill before, nor of another seed.
        drawn = [tuple((world, index) for _, world, index, _ in e) for e in expected.values()]
        assert len(set(drawn)) == len(cells)
        assert ask(PromptStream(worlds, 4, 4, 2), 0, 1, [0, 1, 2, 3]) != expected[0, 1]


LEVELS = {"env": "toy-levels", "reward": "em"}


@pytest.fixture
def worlds_of(toy_registry: Registry) -> Any:
    def make(*tasks: dict[str, Any]) -> list[TaskWorld]:
        return make_worlds(build_config({"tasks": list(tasks)}), toy_registry)

    return make


def test_weights_change_with_the_first_prompt_of_their_step(worlds_of: Any) -> None:
    first, second = {"env": "toy", "weight": {0: 1, 1: 0}}, {"env": "toy", "weight": {0: 0, 1: 1}}
    worlds = worlds_of(first, second)
    stream = PromptStream(worlds, 0, 3, 1)
    drawn = [[worlds.index(r.world) for r in stream.requests(step)] for step in (1, 2)]
    assert drawn == [[0, 0, 0], [1, 1, 1]]


def test_weights_follow_the_steps_and_prompts_follow_the_weights(worlds_of: Any) -> None:
    tasks = [
        {"env": "toy", "weight": {0: 0.2, 30: 0.5}},
        {"env": "plain", "reward": "env", "weight": {0: 0.4, 30: 0.25}},
        {"env": "toy-levels", "weight": {0: 0.4, 30: 0.25}},
    ]
    worlds = worlds_of(*tasks)
    stream = PromptStream(worlds, 0, 20, 1)
    for steps, shares in ((range(30), (0.2, 0.4, 0.4)), (range(30, 60), (0.5, 0.25, 0.25))):
        drawn = Counter(worlds.index(r.world) for step in steps for r in stream.requests(step + 1))
        for place, share in enumerate(shares):
            # 600 draws: four standard deviations are at most 49.
            assert abs(drawn[place] - 600 * share) < 49, (steps, place, drawn)
    # Any step can be asked for first, as a resumed run does, and refills have the same weights.
    other = PromptStream(worlds, 0, 20, 1)
    for refill in (0, 1):
        asked = [
            [(worlds.index(r.world), r.index, r.rng_keys) for r in s.requests(45, refill)]
            for s in (other, stream)
        ]
        assert asked[0] == asked[1]
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
    stream = PromptStream([world], 0, 6, 1)
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
