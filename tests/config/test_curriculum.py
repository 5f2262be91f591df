"""Curricula in a configuration: how they are written, and what is said of slips."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from searchrl.config import RunConfig, build_config
from searchrl.config.curriculum import (
    Condition,
    Stage,
    alone,
    describe_stages,
    list_stages,
    parse_condition,
)
from searchrl.config.tree import parse_set
from searchrl.errors import ConfigError

WAITS = [{"weight": 1}, {"when": "em>0.8", "weight": 0.25}]


def two(first: Any, second: Any = 1.0) -> dict[str, Any]:
    return {"tasks": [{"env": "regulations", "weight": first}, {"env": "corpus", "weight": second}]}


def stages(config: RunConfig, key: str = "weight", place: int = 0) -> tuple[Stage, ...]:
    return list_stages(config.tasks[place], key)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("em>0.8", Condition("em", ">", 0.8)),
        (" em <= -1e-2 ", Condition("em", "<=", -0.01)),
        ("tasks.2.signal:found>=1", Condition("signal:found", ">=", 1.0, 2)),
        ("my-plugin:score<.5", Condition("my-plugin:score", "<", 0.5)),
    ],
)
def test_conditions(text: str, meant: Condition) -> None:
    assert parse_condition(text) == meant == parse_condition(str(meant))


def test_bounds_are_strict_where_they_say_so() -> None:
    held = {op: Condition("em", op, 0.8).holds(0.8) for op in (">", ">=", "<", "<=")}
    assert held == {">": False, ">=": True, "<": False, "<=": True}
    assert not any(Condition("em", op, 0.8).holds(float("nan")) for op in held)


@pytest.mark.parametrize("text", ["em", "em=0.8", "em>", ">0.8", "em>0.8 and f1>1"])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no condition; expected a metric, one of > >= < <="):
        parse_condition(text)


def test_every_way_to_write_stages_is_kept_and_means_the_same() -> None:
    steps = build_config(two({0: 0.2, 30: 0.5}, {"0": 0.4, "30": 0.25}))
    assert stages(steps) == (Stage(0.2), Stage(0.5, 30))
    assert stages(steps, place=1) == (Stage(0.4), Stage(0.25, 30))
    waits = build_config(two([{"weight": 1}, {"from_step": 9, "when": "em>0.8", "weight": 0}]))
    assert stages(waits) == (Stage(1.0), Stage(0.0, 9, Condition("em", ">", 0.8)))
    levels = build_config({"tasks": [{"difficulty": {0: "easy", 30: "hard"}}]})
    assert stages(levels, "difficulty") == (Stage("easy"), Stage("hard", 30))
    reward = [{"until_step": 9, "expr": "em"}, {"when": "em>0.5", "expr": "f1"}]
    rewards = build_config({"reward": reward})
    assert stages(rewards, "reward") == (Stage("em"), Stage("f1", 9, Condition("em", ">", 0.5)))
    for config in (steps, waits, levels, rewards):
        assert build_config(config.to_dict()) == config
        assert build_config(yaml.safe_load(config.to_yaml())).fingerprint == config.fingerprint
    assert describe_stages(steps.tasks)[0] == "tasks.0.weight: 0.2, then 0.5 after step 30"
    assert describe_stages(waits.tasks, {"tasks.0.weight": [7]}) == [
        "tasks.0.weight: 1.0, then 0.0 after step 9 or once em>0.8 (after step 7)"
    ]
    assert describe_stages(build_config({}).tasks) == []


def test_a_flag_replaces_stages_or_addresses_one() -> None:
    flag = parse_set("tasks.0.weight={0: 3, 5: 1}")
    for written in ({0: 1.0, 30: 0.5}, WAITS, 2.0):
        assert stages(build_config(two(written), flag)) == (Stage(3.0), Stage(1.0, 5))
    one = parse_set("tasks.0.weight.1.weight=0.75")
    assert stages(build_config(two(WAITS), one))[1].value == 0.75
    (only,) = stages(build_config(two({0: 1.0, 30: 0.5}), parse_set("tasks.0.weight=2")))
    assert only == Stage(2.0)


def test_a_task_without_the_others_waits_for_none_of_them() -> None:
    tasks: list[dict[str, Any]] = [
        {"env": "regulations", "weight": {0: 0.0, 3: 1.0}, "difficulty": {9: "hard", 0: "easy"}},
        {"weight": [{"weight": 1}], "reward": [{"expr": "em"}, {"when": "em>1", "expr": "f1"}]},
        {"reward": [{"expr": "em"}, {"when": "tasks.0.em>1", "expr": "f1"}]},
        {"difficulty": [{"difficulty": "easy"}, {"when": "tasks.1.em>1", "difficulty": "hard"}]},
    ]
    whole = build_config({"tasks": tasks}).to_dict()["tasks"]
    left = [build_config({"tasks": [alone(task)]}).tasks[0] for task in whole]
    assert [task.weight for task in left] == [1.0] * 4
    assert [task.env.settings.get("difficulty") for task in left] == ["hard", None, None, "hard"]
    assert [len(list_stages(task, "reward")) for task in left] == [1, 2, 1, 1]
    assert left[2].reward == "f1" and all(task.difficulty is None for task in left)


SLIPS = [
    ({30: 1.0}, "there is no weight for step 0; expected {0: …, 30: …}"),
    ({0: 1.0, "a": 2.0}, "'a' is no step; expected {0: …, 30: …}, from step 0 on"),
    ({0: 1.0, -3: 2.0}, "-3 is no step"),
    ({0: 1.0, True: 2.0}, "true is no step"),
    ({0: 1.0, "when": "em>0.8"}, "a condition stands in a list of stages: [{weight: …}, {when:"),
    ({0: 1.0, "em>0.8": 2.0}, "a condition stands in a list of stages"),
    ({0: True}, "tasks.0.weight.0 = true: expected a number"),
    ({0: -1}, "tasks.0.weight.0 = -1: "),
    ([], "the list of stages is empty"),
    ([{"weight": 1, "when": "em>1"}], "stage 1 of 1 begins at step 0; it takes no from_step and"),
    ([{"weight": 1}, {"weight": 2}], "stage 2 of 2 does not say when it begins: give it from_step"),
    (
        [{"weight": 1}, {"from_step": 9, "weight": 2}, {"from_step": 9, "weight": 3}],
        "stage 3 of 3: from_step 9 does not come after 9",
    ),
    (
        [{"weight": 1}, {"when": "em=1", "weight": 2}],
        "tasks.0.weight.1.when = 'em=1': 'em=1' is",
    ),
    ([{"weight": 1}, {"when": "em>1", "weigth": 2}], "'tasks.0.weight.1.weigth'. Did you mean"),
    (
        [{"weight": 1}, {"when": "tasks.2.em>1", "weight": 2}],
        "tasks.0.weight: the condition tasks.2.em>1 is about task 2, and there are 2, counted from",
    ),
]


@pytest.mark.parametrize(("weight", "said"), SLIPS, ids=[str(weight) for weight, _ in SLIPS])
def test_slips_of_a_weight(weight: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(two(weight))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"difficulty": "hard"}, "a difficulty that never changes is env.difficulty: hard"),
        (
            {"env": {"name": "regulations", "difficulty": "easy"}, "difficulty": {0: "hard"}},
            "env.difficulty says it already; keep one of them",
        ),
        ({"difficulty": {1: "hard"}}, "there is no difficulty for step 0"),
        ({"reward": [{"expr": "em", "when": "x"}]}, "tasks.0.reward.0.when = 'x'"),
    ],
)
def test_slips_of_the_others(task: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config({"tasks": [task]})
    assert said.replace("tasks.0.reward", "reward") in str(caught.value)


def both_wait(second: str) -> dict[str, Any]:
    mine = [{"weight": 1}, {"when": "em>0.8", "weight": 0}]
    return two(mine, [{"weight": 0}, {"when": second, "weight": 1}])


@pytest.mark.parametrize(
    ("layer", "step"),
    [
        (two({0: 1.0, 30: 0}, {0: 0, 31: 1}), 30),
        (two({0: 0, 2: 1}, {0: 0, 2: 1}), 0),
        (both_wait("tasks.0.em>0.7"), 0),  # the mean can stand between the two bounds
        (both_wait("em>0.8"), 0),  # that of the second task, which is never drawn
    ],
)
def test_a_step_without_any_weight_is_refused(layer: dict[str, Any], step: int) -> None:
    with pytest.raises(ConfigError, match=f"every weight can be 0 after step {step}"):
        build_config(layer)


def test_weights_that_cross_are_fine() -> None:
    build_config(two({0: 1.0, 30: 0}, {0: 0, 30: 1}))
    build_config(both_wait("tasks.0.em>0.8"))  # both change at the same step


def test_a_task_that_has_begun_by_then_keeps_a_step_from_being_refused() -> None:
    late = [{"weight": 0}, {"from_step": 20, "when": "em>0.5", "weight": 1}]
    build_config(two({0: 1.0, 30: 0}, late))
    with pytest.raises(ConfigError, match="every weight can be 0 after step 10"):
        build_config(two({0: 1.0, 10: 0}, late))


def test_many_tasks_with_conditions_of_their_own_are_looked_at_at_once() -> None:
    tasks: list[dict[str, Any]] = [{"weight": waits} for waits in [WAITS] * 60]
    build_config({"tasks": tasks})
    gone = [{"weight": 1}, {"when": "em>0.8", "weight": 0}]
    with pytest.raises(ConfigError, match="every weight can be 0 after step 0"):
        build_config({"tasks": [{"weight": gone}] * 60})
