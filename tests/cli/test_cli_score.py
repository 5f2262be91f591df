"""`searchrl score`: stored rollouts under another reward, without a model."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, succeed

from searchrl.plugins import load_plugins
from searchrl.programs.evaluate import play_table
from searchrl.run_folder import Run
from searchrl.runs.rescoring import read_recorded

READS_TEXT = """
from searchrl import hookimpl

class Reads:
    values, is_range = (0.0, 1.0), True
    def __init__(self, name):
        self.name = name
    def __call__(self, episode):
        if self.name == "reads_meta":
            return float(bool(episode.task.meta.get("bridge")))
        return float(any(p.text for p in episode.passages))

@hookimpl
def register_rewards(register):
    for name in ("reads_text", "reads_meta"):
        register(name, lambda name=name: Reads(name))
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of a policy that is often wrong, with the scores that it had then."""
    folder = tmp_path_factory.mktemp("stored") / "run"
    words = ["eval", "--policy", "scripted:one_search", "--num-tasks", "24", "--reward"]
    succeed(*words, "0.2*format+em-0.01*searches", "--run-dir", folder, "--json")
    return folder


def scored(run: Path, *words: object) -> dict[str, Any]:
    return dict(json.loads(succeed("score", run, *words, "--json").stdout))


def test_two_rewards_are_compared(stored: Path) -> None:
    found = scored(stored, "--reward", "em", "--against", "1-em")["phases"]["eval"]
    assert found["kendall_tau"] == pytest.approx(-1)
    assert found["first"]["value"] == pytest.approx(1 - found["second"]["value"])
    shown = succeed("score", stored, "--reward", "em", "--against", "1-em").stdout
    assert "em against 1-em" in shown and "-1.000" in shown


def test_what_is_not_stored_is_not_made_up(stored: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "reads.py"
    plugin.write_text(READS_TEXT)
    for name, what in (
        ("reads_text", "the text of passage"),
        ("reads_meta", "Task.meta['bridge']"),
    ):
        result = succeed("score", stored, "--plugin", plugin, "--reward", f"em+{name}")
        said = result.stdout.replace("\n", " ")
        assert "unscored)" in said and what in said and "is not in stored rollouts" in said


def edited(stored: Path, tmp_path: Path, edit: Callable[[list[dict[str, Any]]], None]) -> Path:
    """A copy of a run whose rows were edited."""
    folder = tmp_path / "run"
    shutil.copytree(stored, folder)
    (file,) = (folder / "rollouts").iterdir()
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    edit(rows)
    file.write_bytes(gzip.compress("".join(f"{json.dumps(r)}\n" for r in rows).encode()))
    return folder


def test_a_damaged_row_is_named(stored: Path, tmp_path: Path) -> None:
    edited_again = edited(stored, tmp_path / "again", lambda rows: rows[2].update(reward="much"))
    said = complaint("score", edited_again, "--reward", "em")
    assert "is damaged: row 3: no run writes 'reward" in said.replace("\n", " ")


def test_an_episode_is_the_one_that_was_played(stored: Path) -> None:
    """Actions with what they carry, and ranks: rewards may read them."""
    config, registry = Run.open(stored).config, load_plugins()
    read = read_recorded(Run.open(stored).rollouts(), config, registry)
    played = play_table(config, registry, lambda name, done, total: None).rollouts
    assert len(read) == len(played) == 24
    for one, rollout in zip(read, played, strict=True):
        episode = rollout.episode
        assert one.reward == rollout.reward and one.scores == rollout.scored.scores
        assert [t.action for t in one.episode.turns] == [t.action for t in episode.turns]
        assert [t.ranks for t in one.episode.turns] == [t.ranks for t in episode.turns]
        assert [p.id for p in one.episode.passages] == [p.id for p in episode.passages]
    assert any(turn.ranks for one in read for turn in one.episode.turns)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to score with"),
        (("--reward", "em+"), "reward expression, column 4"),
        (("--reward", "emm"), "Did you mean"),
        (("--reward", "em", "--phase", "after"), "its phases: eval"),
        (("--reward", "em", "--step", "7"), "no such rollouts"),
    ],
)
def test_what_is_wrong_is_said(stored: Path, words: tuple[str, ...], said: str) -> None:
    assert said in complaint("score", stored, *words).replace("\n", " ")
