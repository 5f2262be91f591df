"""`searchrl score`: stored rollouts under another reward, without a model."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, succeed

from searchrl.plugins import load_plugins
from searchrl.programs.evaluate import play_table
from searchrl.run_folder import Run
from searchrl.runs.rescoring import read_recorded


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of a policy that is often wrong, with the scores that it had then."""
    folder = tmp_path_factory.mktemp("stored") / "run"
    words = ["eval", "--policy", "scripted:two_search_regex", "--num-tasks", "24", "--reward"]
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
    assert {line.split()[0] for line in shown.splitlines() if line} >= {"em", "1-em"}


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
