"""The README, the page on retrieval control and the example: what they name is there, and runs."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner
from searchrl_control.collections.written import Kind
from searchrl_control.commands.control import control
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.settings import Action, EnvSettings, Level
from searchrl_control.training.loop import Settings
from searchrl_control.training.networks import NetworkSettings

from searchrl import load_yaml
from searchrl.cli import main

REPO = Path(__file__).resolve().parents[3]
README = (REPO / "plugins" / "searchrl-control" / "README.md").read_text("utf-8")
PAGE = (REPO / "docs" / "how-to" / "retrieval-control.md").read_text("utf-8")
EXAMPLE = REPO / "examples" / "retrieval_control.yaml"
SMALL = ("--set", "max_steps=1", "--set", "questions=2", "--set", "group_size=2")

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("wordllama") is None, reason="needs wordllama"
)


def listed(start: str, end: str) -> set[str]:
    """The names at the beginning of the items between two texts of the page."""
    part = PAGE.partition(start)[2].partition(end)[0]
    lines = re.findall(r"^- ((?:`\w+`(?:, )?)+)", part, re.M)
    return {name for line in lines for name in re.findall(r"`(\w+)`", line)}


def test_the_page_has_every_action_block_and_setting(toy: dict[str, Any]) -> None:
    assert listed("## Actions", "The observation is") == set(Action)
    blocks = {
        name
        for actions in ("published", "heads")
        for name in RetrievalControlEnv(**toy, actions=actions).observation_space.spaces
    }
    assert listed("The observation is", "## Settings") == blocks
    assert listed("Of the environment:", "In Python") == set(EnvSettings.model_fields)
    assert listed("Of a training:", "Of a network:") == set(Settings.model_fields)
    of_network = PAGE.partition("Of a network:")[2].partition("\n\n")[0]
    for name in set(NetworkSettings.model_fields) - {"name"}:
        assert f"`{name}`" in of_network
    for name in (*get_args(Level), *Kind):
        assert f"`{name}`" in PAGE


@needs_model
def test_the_commands_of_the_page_run_one_after_another(
    toy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(REPO / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE, re.M | re.S)
    lines = "".join(blocks).replace("FOLDER", str(toy["collection"])).splitlines()
    commands = [shlex.split(line)[1:] for line in lines]
    said = {}
    assert len(commands) == 6
    for words in commands:
        small = SMALL if words[:2] == ["control", "train"] else ()
        result = CliRunner().invoke(main, ["--plugin", "searchrl_control", *words, *small])
        assert result.exit_code == 0, result.output
        said[" ".join(words[:2])] = result.output
    start = ", ".join(load_yaml(EXAMPLE)["network"]["start"])
    assert f"--set 'network.start=[{start}]'" in said["control sequences"]
    assert f"--set 'network.start=[{start}]'" in README
    assert "learnable" in said["control sequences"] and "toy, test" in said["control eval"]
    told = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    assert [one["step"] for one in told["runs"][0]["sweep"]] == [0, 1]
    made = (tmp_path / "made" / "queries.jsonl").read_text("utf-8")
    assert "made-0-0" in made and (tmp_path / "made" / "left_out.jsonl").is_file()


@needs_model
def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    told: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), told)
    assert told["total"] <= told["info"]["signals"]["ndcg"] <= 1


def test_the_page_names_every_command_and_its_own_flags() -> None:
    assert set(control.commands) == {"sequences", "train", "compare", "eval", "questions"}
    for name, command in control.commands.items():
        assert f"searchrl control {name}" in PAGE
        options = [one for one in command.params if isinstance(one, click.Option)]
        flags = {flag for one in options for flag in one.opts}
        missing = {flag for flag in flags - {"--seed", "--out", "--help"} if flag not in PAGE}
        assert not missing, (name, missing)
