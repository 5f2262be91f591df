"""`searchrl check`: what it prints, what it exits with, and what it does not import."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from command_line import call, succeed
from fixtures.unsound import fault_lines, write_unsound

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
SOUND = FIXTURES / "sound" / "env.py"

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchrl.testing.kit.fuzz.NUM_EXAMPLES", 10)


def check(*arguments: object) -> Result:
    result = call("check", *arguments)
    assert result.exit_code == 1, result.output
    return result


def test_what_holds_is_listed() -> None:
    lines = succeed("check", SOUND).output.splitlines()
    assert lines[0].startswith(f"env capitals  plugin env  {SOUND}:")
    assert lines[1] == "  E1  ✓ is made as a Gymnasium environment" and "17 passed" in lines[-1]


def test_what_does_not_hold_says_what_where_how_and_why(tmp_path: Path) -> None:
    unsound = write_unsound("env", "clamps_index", tmp_path)
    result = check("env:capitals", "--plugin", unsound, "--set", "topk=2")
    (line,) = fault_lines(unsound)
    text = result.output
    assert "  E10 ✗ refuses a split or an index" in text
    assert "what   there are 2 tasks in 'train'; reset(options=" in text
    assert f"where  {unsound}:{line - 1}\n" in text
    assert "fix    raise ValueError with a text that names 2" in text
    assert "why    A typing error" in text


def test_file_that_cannot_be_loaded_is_a_finding() -> None:
    path = FIXTURES / "plugins" / "hook_raises.py"
    result = check(path)
    assert "what   it raised in register_rewards: ValueError" in result.output
    assert f"where  {path}:7" in result.output
    found = json.loads(check(path, "--json").stdout)
    assert not found["is_good"]
    assert (found["not_loaded"][0]["line"], found["reports"]) == (7, [])


def test_json_holds_every_criterion_and_finding(tmp_path: Path) -> None:
    found = json.loads(succeed("check", "tracker:jsonl", "--json").stdout)
    (report,) = found["reports"]
    assert found["is_good"] and report["is_good"]
    assert (report["kind"], report["name"]) == ("tracker", "jsonl")
    assert [r["number"] for r in report["results"]] == ["T1", "T2", "T3", "T5", "N1"]
    assert {r["status"] for r in report["results"]} == {"passed"}
    unsound = write_unsound("env", "clamps_index", tmp_path)
    said = json.loads(check(unsound, "--json").stdout)
    (failed,) = [r for r in said["reports"][0]["results"] if r["status"] == "failed"]
    assert failed["number"] == "E10" and failed["findings"][0]["file"] == str(unsound)


def test_what_lacks_settings_is_not_checked_and_a_fault_only_if_strict() -> None:
    result = succeed("check", "wrapper:time_limit")
    assert "not checked" in result.output and "passed" not in result.output.splitlines()[-1]
    assert "max_turns" in check("wrapper:time_limit", "--strict").output


def test_a_reward_that_asks_a_server_is_told_about_judges(tmp_path: Path) -> None:
    plugin = tmp_path / "asks.py"
    plugin.write_text(
        "import urllib.request\n"
        "from searchrl import hookimpl\n"
        "from searchrl.rewards import FunctionReward\n"
        "def asks(episode):\n"
        "    urllib.request.urlopen('http://127.0.0.1:9/')\n"
        "@hookimpl\n"
        "def register_rewards(register):\n"
        "    register('asks', lambda: FunctionReward('asks', asks, (0.0, 1.0)))\n"
    )
    text = check(plugin).output
    assert "register_judges" in text and "Unscored" in text and "concurrent" not in text
