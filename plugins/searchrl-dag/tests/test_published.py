"""The published curriculum of rewards, as a preset that lies over that of the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from searchrl import ConfigError, Run
from searchrl.programs.setup.init_from import settings_of_source
from searchrl.programs.setup.planning import plan_run
from searchrl.rewards.expression import RewardSchedule

PRESET = "searchrl_dag:presets/published"


def test_the_weights_change_after_thirty_steps() -> None:
    plan = plan_run({"preset": PRESET, "env": "multisource", "model": "tiny"})
    schedule = RewardSchedule.parse(plan.config.tasks[0].reward)
    for step, weights in ((1, (0.2, 0.4, 0.4)), (30, (0.2, 0.4, 0.4)), (31, (0.5, 0.25, 0.25))):
        named = {name: weight for weight, name in schedule.at(step).terms}
        assert named == dict(zip(("dag_judge", "dag", "format"), weights, strict=True))
    assert plan.config.tasks[0].env.name == "multisource"


@pytest.mark.parametrize("preset", [PRESET, "nobody:published"])
def test_it_follows_the_tasks_of_a_run_and_not_its_weights(tmp_path: Path, preset: str) -> None:
    """Even where the package is not installed any more."""
    plan = plan_run({"preset": PRESET, "env": "multisource", "model": "tiny"})
    (tmp_path / "config.yaml").write_text(plan.config.to_yaml().replace(PRESET, preset))
    (tmp_path / "provenance.json").write_text("{}")
    begun = {"init_from": str(tmp_path)}
    again = settings_of_source(Run(tmp_path), [begun])
    assert "preset" not in again
    assert [int(step) for step in again["tasks"][0]["reward"]] == [0, 30]
    other = begun | {"env": "regulations"}
    elsewhere = settings_of_source(Run(tmp_path), [other])
    assert "preset" not in elsewhere and "tasks" not in elsewhere


def test_one_that_is_not_there_says_so() -> None:
    with pytest.raises(ConfigError, match=r"no file 'presets/publishd.yaml' in an installed packa"):
        plan_run({"preset": "searchrl_dag:presets/publishd"})
    with pytest.raises(ConfigError, match="in an installed package 'nobody'. Install that package"):
        plan_run({"preset": "nobody:published"})
