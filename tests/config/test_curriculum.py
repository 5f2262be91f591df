"""Curricula in a configuration: how they are written, and what is said of slips."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from searchrl.config import build_config
from searchrl.config.curriculum import alone, stage_at, stages_of
from searchrl.config.tree import describe_stages, parse_set
from searchrl.errors import ConfigError


def two(first: Any, second: Any = 1.0) -> dict[str, Any]:
    return {"tasks": [{"env": "regulations", "weight": first}, {"env": "corpus", "weight": second}]}


def test_stages_are_kept_as_they_are_written() -> None:
    config = build_config(two({0: 0.2, 30: 0.5}, {"0": 0.4, "30": 0.25}), {"reward": {0: "em"}})
    first, second = (stages_of(task.weight) for task in config.tasks)
    assert first == ((0, 0.2), (30, 0.5)) and second == ((0, 0.4), (30, 0.25))
    assert [stage_at(first, done) for done in (0, 29, 30, 99)] == [0, 0, 1, 1]
    assert stages_of(config.tasks[0].reward) == ((0, "em"),)
    assert build_config(config.to_dict()) == config
    assert build_config(yaml.safe_load(config.to_yaml())).fingerprint == config.fingerprint
    assert describe_stages(config.tasks)[0] == "tasks.0.weight: 0.2, then 0.5 after step 30"
    assert describe_stages(build_config({}).tasks) == []
    assert build_config(two(0)).tasks[0].weight == 0, "evaluated, never trained on"


def test_a_flag_replaces_stages_as_a_whole() -> None:
    config = build_config(two({0: 1, 30: 2}), parse_set("tasks.0.weight={0: 3, 5: 1}"))
    assert config.tasks[0].weight == {0: 3, 5: 1}
    assert build_config(two({0: 1, 30: 2}), parse_set("tasks.0.weight=4")).tasks[0].weight == 4


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"weight": {1: 2.0}}, "no weight for step 0"),
        ({"weight": {0: 1, "em>0.8": 2}}, "is no step"),
        ({"weight": {0: 1, -1: 2}}, "is no step"),
        ({"weight": {0: 1, 1.5: 2}}, "is no step"),
        ({"weight": [{"weight": 1}]}, "{0: …, 30: …}"),
        ({"reward": [{"expr": "em"}]}, "{0: …, 30: …}"),
        ({"reward": {0: 3}}, "reward.0 = 3"),
        ({"difficulty": "hard"}, "env.difficulty: hard"),
        ({"difficulty": {0: "easy"}, "env": {"name": "x", "difficulty": "hard"}}, "env.difficulty"),
        ({"weight": {0: 0.0}}, "every weight is 0 after step 0"),
        ({"weight": {0: 1.0, 7: 0.0}}, "every weight is 0 after step 7"),
    ],
)
def test_slips_are_named(task: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config({"tasks": [task]})
    assert said in str(caught.value)


def test_a_task_alone_has_the_last_difficulty_and_no_weight() -> None:
    task = {"env": {"name": "x"}, "weight": 2.0, "difficulty": {"0": "easy", "10": "hard"}}
    assert alone(task) == {"env": {"name": "x", "difficulty": "hard"}}
