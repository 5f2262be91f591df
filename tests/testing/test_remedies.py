"""What `check` says of errors and names: a remedy for the error at hand, a name that is taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import call, succeed
from fixtures.unsound import SOUND

from searchrl.testing import check_plugin

pytestmark = pytest.mark.thorough

MAKE = "    def num_tasks(self, split: str) -> int:\n"


@pytest.mark.parametrize(
    ("kind", "old", "new", "fix"),
    [
        (
            "env", MAKE,
            "    def __init__(self, **s):\n        super().__init__(**s)\n"
            '        open("tasks.jsonl")\n\n' + MAKE,
            "Path(__file__).parent / 'tasks.jsonl'",
        ),
    ],
)  # fmt: skip
def test_an_error_gets_the_remedy_of_its_kind(
    kind: str, old: str, new: str, fix: str, tmp_path: Path
) -> None:
    text = (SOUND / f"{kind}.py").read_text("utf-8")
    assert text.count(old) == 1
    path = tmp_path / "wrong.py"
    path.write_text(text.replace(old, new), "utf-8")
    (report,) = check_plugin(str(path))
    fixes = [finding.fix for result in report.failed for finding in result.findings]
    assert fixes and any(fix in one for one in fixes), fixes


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        ("open('words.txt')", "Path(__file__).parent / 'words.txt'"),
        (
            "from searchrl import hookimpl\n\ndef register_rewards(register):\n    pass",
            "as it says",
        ),
    ],
)
def test_a_file_that_does_not_load_gets_one_too(code: str, fix: str, own_folder: Path) -> None:
    (own_folder / "wrong.py").write_text(code + "\n", "utf-8")
    result = call("check", "wrong.py")
    assert result.exit_code == 1
    (said,) = [line for line in result.stdout.splitlines() if line.strip().startswith("fix ")]
    assert fix in said


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
    assert "the name is taken: plugin searchrl" in result.stdout
    assert "'mine:em'" in result.stdout
    (report,) = json.loads(succeed("check", "mine.py", "--json").stdout)["reports"]
    assert report["is_good"] and "choose another name" in report["warnings"][0]


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
