"""What `check` says beside its findings: a name that is taken, a reward that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import succeed
from fixtures.unsound import SOUND

from searchrl.testing import check_plugin

pytestmark = pytest.mark.thorough

TAKEN = """
from searchrl import hookimpl
from searchrl.rewards import FunctionReward

@hookimpl
def register_rewards(register):
    def score(episode):
        return float(episode.final_answer in episode.task.answers)

    register("em", lambda: FunctionReward("em", score, (0.0, 1.0)))
"""


def test_a_name_that_is_taken_is_a_warning(own_folder: Path) -> None:
    (own_folder / "mine.py").write_text(TAKEN, "utf-8")
    result = succeed("check", "mine.py")
    assert "is registered by plugin searchrl" in result.stdout
    assert "'mine:em'" in result.stdout
    (report,) = json.loads(succeed("check", "mine.py", "--json").stdout)["reports"]
    assert report["is_good"] and "Neither wins" in report["warnings"][0]


def test_a_default_reward_that_does_not_exist_is_a_warning(own_folder: Path) -> None:
    text = (SOUND / "env.py").read_text("utf-8")
    old = "Capitals, policies="
    assert old in text
    (own_folder / "mine.py").write_text(
        text.replace(old, 'Capitals, reward="breif+em", policies='), "utf-8"
    )
    (report,) = check_plugin("mine.py")
    (said,) = report.warnings
    assert said.startswith("its default reward cannot be used") and "'breif'" in said
