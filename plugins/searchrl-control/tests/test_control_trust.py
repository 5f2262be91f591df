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
        "model": {"name": "tiny"},
        "eval": {"num_tasks": 1},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "provenance.json").write_text('{"plugins": []}')
    return folder


def call(*words: object) -> Result:
    # Named by the user, so that it need not be installed.
    flags = ("--plugin", "searchrl_control")
    return CliRunner().invoke(main, [*flags, *map(str, words)])


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
    assert "http://127.0.0.1:9/evil" in result.stderr and "--trust" in result.stderr
    assert "sk-secret" not in result.output and not (tmp_path / "new").exists()


def test_a_strangers_run_writes_no_split_elsewhere(tmp_path: Path) -> None:
    """Without the rule, opening the environment writes the file."""
    split = tmp_path / "elsewhere" / "split.json"
    run = make_run(tmp_path / "run", split_file=str(split))
    words = ("eval", "--config", run / "config.yaml")
    result = call(*words)
    assert result.exit_code == 2 and str(split) in result.stderr and not split.exists()


def test_a_strangers_training_asks_nobody_and_its_text_is_shown_as_text(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for settings, said in (
        ({"envs": [{**EVIL}]}, "say that you mean it: --set env.url=ADDRESS"),
        ({"network": {"name": "\x1b[31mx"}}, "is damaged"),
    ):
        told = {"settings": settings, "space": {}}
        (run / "config.json").write_text(json.dumps(told))
        (run / "checkpoints").mkdir(exist_ok=True)
        (run / "checkpoints" / "step_000000.safetensors").write_bytes(b"")
        for words in (("compare", run), ("train", "--resume", run)):
            result = call("control", *words)
            assert result.exit_code == 2 and "\x1b" not in result.output
            assert said in result.output
