"""`searchrl doctor` as a user sees it, and a check that stops `searchrl train`."""

import json
from pathlib import Path

import pytest
from command_line import call, succeed

from searchrl.core.trajectory import Author, Segment
from searchrl.engine.checks.doctor import CHECKS


def test_a_healthy_run_passes_every_check(micro_flags: list[str]) -> None:
    result = succeed("doctor", *micro_flags[:4], *micro_flags[6:])
    for name, (question, _) in CHECKS.items():
        assert f"  {name:<12}" in result.stdout and question in result.stdout
    assert " passed" in result.stdout.splitlines()[-1] and "failed" not in result.stdout


def test_a_run_folder_is_looked_at_with_its_own_configuration(micro_run: Path) -> None:
    found = json.loads(succeed("doctor", micro_run, "--json").stdout)
    assert found["is_good"]
    assert [one["name"] for one in found["checks"]] == [*CHECKS]
    figures = {one["name"]: one["figures"] for one in found["checks"]}
    assert figures["batch"]["tokens"] > 20
    assert figures["batch"]["mismatch"] < figures["batch"]["limit"]


def test_a_failed_check_is_exit_status_1_and_says_what_to_do(micro_flags: list[str]) -> None:
    flags = [*micro_flags[:4], *micro_flags[6:], "--set", "sampling.top_p=0.5"]
    assert "sampling.top_p=0.5" in call("doctor", *flags).stdout
    result = call("doctor", *flags, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    failed = [one["name"] for one in found["checks"] if one["state"] == "failed"]
    assert failed == ["sampling"] and not found["is_good"]


def test_training_that_would_go_wrong_ends_before_it_begins(
    micro_flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Segment,
        "trained",
        property(lambda t: [author is not Author.PROMPT for author in t.authors]),
    )
    result = call("train", *micro_flags, "--run-dir", tmp_path / "run")
    assert result.exit_code == 1
    assert "Error: check 'batch': mask: token " in result.stderr
    assert "trained and was not written by the model" in result.stderr
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
