"""A run folder of somebody else: whom its environment asks and what it writes needs permission."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from searchrl.cli import main

ENV = {"name": "retrieval-control", "max_steps": 2}
EVIL = {"reformulator": "endpoint", "endpoint_model": "m", "url": "http://127.0.0.1:9/evil"}


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has trusted nothing yet, and whose caches are empty."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("SEARCHRL_API_KEY", "sk-secret")
    monkeypatch.setenv("COLUMNS", "400")


def make_run(folder: Path, **env: Any) -> Path:
    """A run folder as a stranger may have made it."""
    folder.mkdir()
    config = {
        "env": {**ENV, **env},
        "policy": "control-linear",
        "eval": {"num_tasks": 1},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "provenance.json").write_text('{"plugins": []}')
    return folder


def call(*words: object) -> Result:
    flags = ("--plugin", "searchrl_control")  # named by the user, so that it need not be installed
    return CliRunner().invoke(main, [str(word) for word in (*words, *flags)])


@pytest.mark.parametrize("command", ["eval", "doctor", "train"])
def test_a_strangers_run_asks_nobody(command: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **EVIL)
    words = {
        "eval": ("eval", "--config", run / "config.yaml"),
        "doctor": ("doctor", "--config", run / "config.yaml"),
        "train": ("train", "--config", run / "config.yaml", "--run-dir", tmp_path / "new"),
    }[command]
    result = call(*words)
    assert result.exit_code == 2
    assert "address http://127.0.0.1:9/evil with the key in SEARCHRL_API_KEY" in result.stderr
    assert "sk-secret" not in result.output and not (tmp_path / "new").exists()


def test_who_names_the_address_has_said_whom_to_ask(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **EVIL)
    mine = ("--set", "env.url=http://127.0.0.1:9/mine", "--set", "env.reformulator=endpoint")
    words = ("eval", "--config", run / "config.yaml", "--policy", "scripted")
    # It goes on to what comes next: there is no such script.
    result = call(*words, *mine)
    assert "wants to use" not in result.stderr and "evil" not in result.stderr
    assert "evil" in call(*words, "--set", "env.reformulator=endpoint").stderr


def test_a_strangers_run_writes_no_split_elsewhere(tmp_path: Path) -> None:
    """Without the rule, opening the environment writes the file."""
    split = tmp_path / "elsewhere" / "split.json"
    run = make_run(tmp_path / "run", split_file=str(split))
    words = ("eval", "--config", run / "config.yaml")
    result = call(*words)
    assert result.exit_code == 2 and str(split) in result.stderr and not split.exists()


def test_a_strangers_cache_is_not_written(tmp_path: Path) -> None:
    cache = tmp_path / "elsewhere"
    run = make_run(tmp_path / "run", cache=str(cache))
    result = call("eval", "--config", run / "config.yaml")
    assert result.exit_code == 2 and str(cache) in result.stderr and not cache.exists()


def test_a_strangers_network_is_read_as_data(tmp_path: Path) -> None:
    """What its policy.json says is shown as text, and a file that is none is refused."""
    run = make_run(tmp_path / "run")
    policy = run / "policy"
    policy.mkdir()
    space = {"blocks": [["\x1b[31mred", 3]], "actions": ["\x1b[2J"], "max_choices": 2}
    (policy / "policy.json").write_text(json.dumps({"name": "\x1b[31mx", "space": space}))
    result = call("eval", run)
    assert result.exit_code == 2 and "\x1b" not in result.output
