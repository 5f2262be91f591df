"""`searchrl judge`: cases, agreement and cost; and the criteria of the package."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fixtures.openai_server import Fault, OpenAIServer
from judge_models import careful, obedient, say, shown
from searchrl_judge.command import read_cases

from searchrl import DataError
from searchrl.cli import main
from searchrl.contracts import JudgeCase
from searchrl.testing import Status, check_plugin

MODULE = "searchrl_judge"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["--plugin", MODULE, "judge", *words])


def settings(url: str, **more: Any) -> list[str]:
    # With repetitions: this server is small, and many ask at once.
    given = {"url": url, "model": "toy", "cache": "off", "max_retries": 3, **more}
    return ["--judge", "endpoint"] + [
        w for k, v in given.items() for w in ("--set", f"judge.{k}={v}")
    ]


def test_agreement_is_told_with_exact_match_and_the_scores_of_a_file(tmp_path: Path) -> None:
    """The model takes an answer that contains the accepted one for right, but for `half`."""
    rows = [
        {"answer": "x", "answers": "x", "score": 1},
        {"answer": "near x", "answers": ["x"], "score": 0.5},
        {"answer": "far", "answers": ["x"], "score": 0.5},
        {"answer": "half", "answers": ["x"]},
        {"answer": "half", "answers": [], "score": 1},
        {"answer": "wide x", "answers": ["x"], "score": 0},
    ]
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps({"question": "q", **row}) + "\n" for row in rows), "utf-8")

    def model(body: dict[str, Any]) -> str:
        return say("partly right") if shown(body)["answer"] == "half" else careful(body)

    with OpenAIServer(model) as server:
        said = run(str(file), *settings(server.url, prompt_price=1.0, completion_price=1.0))
    assert said.exit_code == 0, said.output
    assert "endpoint: about 6 calls" in said.stdout and "cost about" in said.stdout
    table = said.stdout.partition("judge endpoint: 6 of 6 cases scored\n")[2].splitlines()
    # Wilson for 3 of 5: (0.6 + 0.38415) / 1.76829 ± 1.95996 · sqrt(0.048 + 0.038415) / 1.76829.
    assert table[:3] == [
        "agrees with exact match 0.600 [0.231, 0.882] (3 of 5); higher 2 times, lower 0 times",
        "  1, not 0: 'near x' to 'q'",
        "  1, not 0: 'wide x' to 'q'",
    ]
    assert table[3].startswith("agrees with your scores 0.200 [")
    assert table[3].endswith("] (1 of 5); higher 2 times, lower 2 times")
    assert [line.partition(" to ")[0] for line in table[4:7]] == [
        "  1, not 0: 'wide x'", "  1, not 0.5: 'near x'", "  0, not 0.5: 'far'",
    ]  # fmt: skip
    assert table[7].startswith("endpoint: 6 calls")


def test_a_dry_run_asks_nobody() -> None:
    with OpenAIServer(careful) as server:
        said = run("--dry-run", *settings(server.url))
    assert said.exit_code == 0 and not server.bodies and "about 41 calls" in said.stdout


def test_a_budget_ends_the_asking_and_an_outage_ends_with_its_reason() -> None:
    with OpenAIServer(careful) as server:
        said = run(*settings(server.url, max_calls=5, concurrency=1))
    assert said.exit_code == 0 and len(server.bodies) == 5
    assert "5 of 41 cases scored" in said.stdout and "not scored, 36 times: " in said.stdout
    with OpenAIServer(lambda body: Fault(401, "bad key")) as server:
        said = run(*settings(server.url))
    assert said.exit_code == 2 and "bad key" in said.stdout
    assert "scored none of the cases" in said.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--judge", "lexicl"], "Did you mean 'lexical'"),
        (["--judge", "lexical", "--set", "near=1"], "--set is for judge.KEY=VALUE"),
        (["--judge", "lexical", "--set", "judge.near=1"], "has no setting 'near'"),
        (["nowhere.jsonl", "--judge", "lexical"], "nowhere.jsonl"),
    ],
)
def test_a_slip_on_the_command_line_says_what_to_do(words: list[str], text: str) -> None:
    said = run(*words)
    assert said.exit_code == 2 and text in " ".join(said.stderr.split()), said.output


def test_cases_are_rows_of_any_file_and_rollouts_of_a_run(tmp_path: Path) -> None:
    own = read_cases()
    assert len(own) == 41 and {label for _, label in own} == {0, 0.5, 1}
    rollout = {"task": {"question": "Who?", "answers": ["Ada"]}, "final_answer": "Ada", "turns": []}
    file = tmp_path / "rollouts.jsonl"
    file.write_text(json.dumps(rollout) + "\n" + json.dumps(rollout | {"final_answer": None}))
    assert read_cases(file) == [(JudgeCase("Who?", "Ada", ("Ada",)), None)]
    file.write_text('{"question": "q", "answer": "a", "answers": null, "score": NaN}')
    assert read_cases(file) == [(JudgeCase("q", "a", ()), None)]
    for row, text in (
        ({"answer": "x"}, "'question' is null"),
        ({"question": "q", "answer": "x", "answers": [1]}, r"'answers' is \[1\]"),
        ({"question": "q", "answer": "x", "score": 0.7}, "'score' is 0.7; expected 0, 0.5 or 1"),
        ([], "expected an object"),
    ):
        file.write_text(json.dumps({"question": "q", "answer": "a"}) + "\n" + json.dumps(row))
        with pytest.raises(DataError, match=f"rollouts.jsonl:2: .*{text}"):
            read_cases(file)


@pytest.mark.thorough
def test_every_part_meets_its_criteria(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    reports = {(one.kind, one.name): one for one in check_plugin(MODULE, plugins=[MODULE])}
    assert reports.keys() == {("judge", "endpoint"), ("judge", "gemini"), ("reward", "judge_rank")}
    for report in reports.values():
        assert report.is_good, report.failed
    skipped = [r.note for r in reports["judge", "gemini"].results if r.status is not Status.PASSED]
    assert all("GEMINI_API_KEY holds no key" in note for note in skipped) and len(skipped) >= 5


def test_a_judge_whose_server_is_there_is_held_to_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    for model, failed in ((careful, set()), (obedient, {"V5"})):
        with OpenAIServer(model) as server:
            given = {"url": server.url, "model": "toy", "cache": "off"}
            (report,) = check_plugin("endpoint", kind="judge", settings=given, plugins=[MODULE])
        assert {one.number for one in report.failed} == failed, report.failed
        assert not [r for r in report.results if r.status is Status.NOT_APPLICABLE]
