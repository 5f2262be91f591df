"""What `check` says beside its findings: a name that is taken, a reward that is not there."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from command_line import call, succeed
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


def test_a_name_that_is_taken_is_a_warning_and_the_next_line_still_runs(own_folder: Path) -> None:
    (own_folder / "mine.py").write_text(TAKEN, "utf-8")
    result = succeed("check", "mine.py")
    assert "is registered by plugin searchrl" in result.stdout
    assert "'mine:em'" in result.stdout
    line = shlex.split(result.stdout.rstrip().splitlines()[-1].removeprefix("Next:"))
    assert line[0] == "searchrl" and "mine:em" in line
    succeed(*line[1:], "--num-tasks", "2")
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


def test_the_check_to_run_again_has_its_flags(own_folder: Path) -> None:
    text = (SOUND / "env.py").read_text("utf-8").replace("return len", "return -len")
    (own_folder / "mine.py").write_text(text, "utf-8")
    flags = ("capitals", "--plugin", "mine.py", "--kind", "env", "--set", "max_turns=6")
    result = call("check", *flags)
    assert result.exit_code == 1
    assert result.stdout.rstrip().endswith(
        "fix it, then run  searchrl check capitals --plugin mine.py --kind env --set max_turns=6"
    )
