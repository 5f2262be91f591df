"""The page on retrieval-control and examples/retrieval_control.yaml: its commands run as printed.

The core's tests of its docs have no plugin.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from searchrl_control.commands.control import control
from searchrl_control.environment.factory import make_env
from searchrl_control.generation.curriculum import LEVELS
from searchrl_control.generation.written import Kind
from searchrl_control.training.folder import build_settings

from searchrl import load_yaml
from searchrl.cli import main

REPO = Path(__file__).resolve().parents[3]
PAGE = (REPO / "docs" / "how-to" / "retrieval-control.md").read_text("utf-8")
EXAMPLE = REPO / "examples" / "retrieval_control.yaml"
SMALL = ("--set", "max_steps=1", "--set", "questions=2", "--set", "group_size=2")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("wordllama") is None, reason="needs wordllama"
)


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE, re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("searchrl ")]


def test_the_commands_of_the_page_run_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(REPO / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    said = {}
    assert len(commands()) == 5
    for words in commands():
        own = ["--plugin", "searchrl_control"]
        given = [*own, *words]
        if words[:2] == ["control", "train"]:
            given += SMALL
        if words[:2] == ["control", "sequences"]:
            given += ["--only", "Fuse,Hop"]  # the page plays all of them
        result = CliRunner().invoke(main, given)
        assert result.exit_code == 0, result.output
        said[" ".join(words[:2])] = result.output
    assert "--set 'network.start=[" in said["control sequences"]
    assert "learnable" in said["control sequences"] and "| heuristic |" in said["control compare"]
    told = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    assert [one["checkpoint"] for one in told["runs"][0]["sweep"]] == ["step 0", "step 1"]
    made = (tmp_path / "made" / "queries.jsonl").read_text("utf-8")
    assert "made-0-0" in made and (tmp_path / "made" / "left_out.jsonl").is_file()


def test_the_example_has_the_published_curriculum() -> None:
    settings = build_settings(load_yaml(EXAMPLE))
    per_step = settings.questions * settings.group_size
    (env,) = settings.envs
    assert env["difficulty"] == {0: "any", 1_000 // per_step: "mostly_hard"}
    assert settings.checkpoint_every * per_step == 1_000


def flags(command: click.Command) -> set[str]:
    return {
        flag
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for flag in parameter.opts
        if flag.startswith("--")
    }


def test_the_page_names_every_command_and_its_own_flags() -> None:
    assert set(control.commands) == {"sequences", "train", "compare", "questions"}
    common = {"--plugin", "--seed", "--out", "--help"}
    for name, command in control.commands.items():
        assert f"searchrl control {name}" in PAGE
        missing = {flag for flag in flags(command) - common if flag not in PAGE}
        assert not missing, (name, missing)


def test_the_page_names_levels_kinds_and_settings_that_exist() -> None:
    import inspect

    for level in LEVELS:
        assert f"`{level}`" in PAGE
    for kind in Kind:
        assert f"| `{kind}` |" in PAGE
    settings: dict[str, Any] = dict(inspect.signature(make_env).parameters)
    named = set(re.findall(r"env\.(\w+)", PAGE)) - {"KEY"}
    assert named and named <= settings.keys()
