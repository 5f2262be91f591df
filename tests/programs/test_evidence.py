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

BY_HEART = """
from searchrl import hookimpl
from searchrl.contracts import Action
from searchrl.envs.regulations import RegulationsEnv

class ByHeart:
    def __init__(self, env, task, protocol):
        actions = [Action("search", (one,)) for one in task.meta["queries"]]
        actions.append(Action("answer", task.answers[0]))
        self.turns = [protocol.render_turn(one, "I know this.") for one in actions]

    def act(self, observation):
        return self.turns.pop(0)

@hookimpl
def register_envs(register):
    register("known", RegulationsEnv, scripts={"by_heart": ByHeart})
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("evidence") / "run"
    words = "evidence --env regulations --policy scripted:two_search_regex --num-tasks 24 --json"
    return json.loads(succeed(*words.split(), "--run-dir", folder).stdout), folder


def test_a_reader_follows_and_who_knows_by_heart_sticks(
    recorded: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    plugin = tmp_path / "heart.py"
    plugin.write_text(BY_HEART, "utf-8")
    words = "--env known --policy scripted:by_heart --num-tasks 24 --json".split()
    heart = json.loads(succeed("evidence", "--plugin", plugin, *words).stdout)
    reader, _ = recorded
    for one, other, outcome in ((reader, heart, "follows"), (heart, reader, "sticks")):
        assert one["if_shown"][outcome]["low"] > other["if_shown"][outcome]["high"] + 0.2
    assert reader["num_tasks"] == 24 > reader["num_changed"] > 10
    assert reader["outcomes"]["none"]["gives_up"]["value"] == 1
    assert reader["paired"]["value"]["sticks"]["high"] < 0
    for shares in (*reader["outcomes"].values(), reader["if_shown"]):
        assert sum(one["value"] for one in shares.values()) == pytest.approx(1)


def test_rows_say_what_was_shown_and_can_be_scored_again(
    recorded: tuple[dict[str, Any], Path],
) -> None:
    figures, folder = recorded
    rows = [*Run.open(folder).rollouts("evidence_value")]
    tables = [one for row in rows for one in row["drawings"] if one["by"] == "wrapper 'altered'"]
    assert tables
    for _, shown, original in (line for table in tables for line in table["rows"]):
        assert shown != original
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
    turns = list(zip(first.episode.turns[:kept], before.episode.turns, strict=False))
    assert [one.observation for one, _ in turns] == [one.observation for _, one in turns]
    assert all("<think></think>" in one.text for one, _ in turns)
    segment, codec = first.trajectory.segments[0], player.driver.codec
    read = codec.decode(segment.ids[: first.trajectory.turns[0].start])
    whole = codec.decode(before.trajectory.ids[: before.trajectory.turns[kept].start])
    assert read == re.sub(r"<think>.+?</think>", "<think></think>", whole)
