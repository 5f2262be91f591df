"""Tasks played again with one thing changed: who reads and who knows by heart are told apart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import succeed

from searchrl import open_player
from searchrl.programs.evidence import play_changed
from searchrl.run_folder import Run

Recorded = tuple[dict[str, Any], Path]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("evidence") / "run"
    words = "evidence --env multihop --policy scripted:two_search --num-tasks 56 --json"
    words += " --set eval.temperature=1"
    return json.loads(succeed(*words.split(), "--run-dir", folder).stdout), folder


def test_a_reader_follows_and_who_knows_the_answer_sticks(recorded: Recorded) -> None:
    words = "evidence --env multihop --policy scripted:oracle_hop --num-tasks 56 --json"
    knows = json.loads(succeed(*words.split()).stdout)
    reader, _ = recorded
    for one, other, outcome in ((reader, knows, "follows"), (knows, reader, "sticks")):
        assert one["if_shown"][outcome]["low"] > other["if_shown"][outcome]["high"] + 0.5
    # Of 8 the answer is yes or no, and 9 have it in the question.
    assert (reader["num_tasks"], reader["num_changed"]) == (56, 39)
    assert reader["outcomes"]["none"]["gives_up"]["value"] == 1
    assert reader["paired"]["value"]["sticks"]["high"] < 0


def test_rows_say_what_was_shown_and_can_be_scored_again(recorded: Recorded) -> None:
    figures, folder = recorded
    run = Run.open(folder)
    assert run.config.eval.temperature == 0, "greedy, whatever evaluations are"
    rows = [*run.rollouts("evidence_value")]
    tables = [one for row in rows for one in row["drawings"] if one["by"] == "wrapper 'altered'"]
    assert tables and all(shown != was for one in tables for _, shown, was in one["rows"])
    words = ("--reward", "follows", "--phase", "evidence_value", "--json")
    phase = json.loads(succeed("score", folder, *words).stdout)["phases"]["evidence_value"]
    followed = figures["outcomes"]["value"]["follows"]["value"] * figures["num_changed"]
    assert phase["first"]["value"] * phase["n"] == pytest.approx(followed)


def test_a_model_goes_on_without_its_earlier_thoughts() -> None:
    settings = {"env": "regulations", "model": {"name": "tiny"}, "eval": {"num_tasks": 12}}
    with open_player(settings) as player:
        results = play_changed(player, lambda name, done, total: None)
    plain = {one.trajectory.group_id: one for one in results["as_is"].rollouts}
    (first, *_) = (one for one in results["thoughts"].rollouts if one.trajectory.num_kept)
    assert len(results["thoughts"].rollouts) == 12 and first.episode.failure is None
    before = plain[first.trajectory.group_id]
    kept = first.trajectory.num_kept
    segment, codec = first.trajectory.segments[0], player.driver.codec
    read = codec.decode(segment.ids[: first.trajectory.turns[0].start])
    whole = codec.decode(before.trajectory.ids[: before.trajectory.turns[kept].start])
    assert read == re.sub(r"<think>.+?</think>", "<think></think>", whole)
