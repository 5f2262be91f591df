"""The page of a run whose policy chooses by number: actions and probabilities, and no tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest
from browser import Browser
from command_line import succeed

from searchrl import Run, train
from searchrl.report.folder import write_report
from searchrl.report.patterns import find_pattern

pytestmark = pytest.mark.thorough

ARMS = str(Path(__file__).parents[1] / "fixtures" / "arms.py")
SETTINGS: dict[str, Any] = {
    "env": "arms",
    "policy": {"name": "mlp", "hidden": []},
    "plugins": [ARMS],
    "algorithm": {"beta": 0},
    "rollout": {"prompts_per_step": 2, "group_size": 4},
    "eval": {"num_tasks": 4, "every": 0},
    "max_steps": 3,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train({**SETTINGS, "run_dir": str(tmp_path_factory.mktemp("choices") / "run")})


@pytest.fixture(scope="module")
def window(run: Run) -> Iterator[Browser]:
    if browser.find() is None:
        pytest.skip("no Chromium")
    page = write_report([run], run.path / "report").page
    with Browser() as one:
        one.open(page)
        yield one
        assert one.console() == []


def test_the_run_page_shows_shares_of_actions_and_no_token(window: Browser, run: Run) -> None:
    window.go("#/")
    shown = window.text("#actions")
    least = min(row["least_action_p"] for row in run.metrics)
    assert "So every action could still be drawn." in shown
    assert f"{least:.3f} (step" in shown
    assert window.run("return document.querySelectorAll('#actions polygon.share').length") == 3
    last = [row for row in run.metrics if row["phase"] == "train"][-1]
    values = [{n: m["value"] for n, m in run.summary["before"].items()}, last]
    for name in ("look", "left", "right"):
        line = next(line for line in shown.splitlines() if line.startswith(f"{name}\t"))
        said = [float(one) for one in re.findall(r"[\d.]+(?= %)", line)]
        of_name = [row[start + name] for row in values for start in ("action/", "free_action/")]
        assert said[:4] == pytest.approx([100 * share for share in of_name], abs=0.051)
    everything = window.text()
    assert "policy\nmlp (hidden [])" in everything and "turns" in everything
    assert "token" not in window.text(".questions") and "model_tokens" not in everything
    assert "free_action/look" not in window.text("#before-after")


def test_the_tasks_of_a_mixture_do_not_fill_the_table_with_shares(window: Browser) -> None:
    told = window.run(
        "return ['action/look', 'a.0/action/look', 'a.0/free_action/look', 'a.0/least_action_p', "
        "'a.0/ending_choices', 'a.0/reward', 'reward', 'a.0/reaction'].map(SEARCHRL.actions.isOwn)"
    )
    assert told == [True] * 5 + [False] * 3


def test_every_question_leads_to_a_view(window: Browser) -> None:
    links = window.run("return SEARCHRL.questions().map(([, target]) => target)")
    assert len(links) == 10
    for link in links:
        window.go(link)
        assert window.text().strip()
    window.go("#/?see=actions")
    assert "Actions" in window.text("#actions")


def test_the_list_has_no_columns_of_text(window: Browser) -> None:
    window.go("#/rollouts?phase=train")
    heads = window.run(
        "return [...document.querySelectorAll('.list th')].map((th) => th.innerText)"
    )
    assert "what it chose" in heads and "choices" in heads
    assert not {"tokens written", "searches", "turns"} & set(heads)
    assert "searched" not in window.text(".filters")
    assert "look → " in window.text(".patterns")


def test_a_rollout_shows_every_choice_with_its_probabilities(window: Browser, run: Run) -> None:
    row = next(one for one in run.rollouts("train") if one["ratio"] and len(one["choices"]) == 2)
    window.go(f"#/rollout/train.{row['step']}/{row['rollout_id']}")
    shown = window.text("#choices")
    assert "look (nothing else was legal)" in shown and "Not legal: left, right." in shown
    taken = row["turns"][1]["text"]
    for name, p in row["choices"][1]["probs"].items():
        mark = " ◂ taken" if name == taken else ""
        assert f"{name}{mark}\t{100 * p:.1f} %" in shown
    assert "ratio\n1\n" in shown and "advantage\n" in shown
    window.click("#choices li:nth-child(2) summary")
    assert "cue\n" in window.text("#choices") and "step\n" in window.text("#choices")
    everything = window.text()
    assert "its answer" not in everything and "pushes its tokens" not in everything
    window.go(f"#/group/train.{row['step']}/{row['rollout_id']}")
    p = row["choices"][1]["probs"][taken]
    assert f"{taken} at {100 * p:.1f} %" in window.text() and "Answer:" not in window.text()


def test_what_is_too_long_is_said_and_not_recorded(tmp_path: Path) -> None:
    settings = {**SETTINGS, "max_steps": 0, "log": {"max_seen": 8}}
    run = train({**settings, "run_dir": str(tmp_path / "run")})
    assert {choice["seen"] for row in run.rollouts() for choice in row["choices"]} == {None}
    if browser.find() is None:
        return
    row = next(run.rollouts("after"))
    with Browser() as one:
        one.open(write_report([run], run.path / "report").page)
        one.go(f"#/rollout/after.0/{row['rollout_id']}")
        assert "was not recorded: 9 numbers, more than log.max_seen" in one.text("#choices")


def test_no_tokenizer_is_missed(run: Run) -> None:
    assert write_report([run], run.path / "report").notes == ()
    row = json.loads(json.dumps(next(run.rollouts("train"))))
    assert find_pattern(row).startswith("look")
    assert find_pattern(row | {"choices": None}).startswith("actions: act")


def test_a_terminal_shows_the_same(run: Run) -> None:
    said = succeed("inspect", run.path, "--text").output
    assert "policy mlp" in said and "chooses look" in said and "model_tokens" not in said
    assert "support_recall" not in said and "look → " in said
    row = next(run.rollouts("after"))
    one = succeed("inspect", run.path, "--text", "--rollout", f"after.3/{row['rollout_id']}").output
    assert "choice 1: look 1" in one and "token" not in one
