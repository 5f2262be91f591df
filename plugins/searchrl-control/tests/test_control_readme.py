"""The README names what there is, and its Python runs."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from searchrl_control.environment.actions import SETS, Action
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.worlds import Place
from searchrl_control.policies.networks import NETWORKS
from searchrl_control.training.loop import Settings

README = (Path(__file__).resolve().parents[1] / "README.md").read_text("utf-8")
PASSED = {"self", "render_mode", "place"}


def rows(heading: str) -> dict[str, str]:
    """The first cells of the table below a heading, and the second ones."""
    part = re.sub(r"```.*?```", "", README.partition(f"\n{heading}\n")[2], flags=re.DOTALL)
    part = part.partition("\n#")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", part, re.MULTILINE))


def test_settings() -> None:
    taken = set(inspect.signature(RetrievalControlEnv.__init__).parameters) - PASSED
    assert set(rows("### Settings")) == taken | {one.name for one in dataclasses.fields(Place)}


def test_actions_and_the_sets_they_are_in() -> None:
    told = rows("### Actions")
    assert set(told) == set(Action)
    for action, where in told.items():
        sets = [name for name, actions in SETS.items() if action in actions]
        assert where == ("all" if len(sets) == len(SETS) else ", ".join(sets)), action


def test_blocks_of_the_observation(toy: dict[str, Any]) -> None:
    told = rows("### Observation")
    seen: dict[str, list[str]] = {}
    for name in SETS:
        for block in RetrievalControlEnv(**toy, actions=name).observation_space.spaces:
            seen.setdefault(block, []).append(name)
    assert told == {
        block: "all" if len(sets) == len(SETS) else ", ".join(sets) for block, sets in seen.items()
    }


def test_networks_and_their_settings() -> None:
    told = rows("## Networks")
    assert set(told) == set(NETWORKS)
    for name, settings in told.items():
        known = list(inspect.signature(NETWORKS[name]).parameters)[1:]
        assert re.findall(r"`(\w+)`", settings) == known


def test_settings_of_a_training() -> None:
    assert set(rows("### Training")) == set(Settings.model_fields)


@pytest.mark.skipif(importlib.util.find_spec("wordllama") is None, reason="needs wordllama")
def test_its_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "| heuristic |" in capsys.readouterr().out
