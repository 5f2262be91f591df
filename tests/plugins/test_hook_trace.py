"""SEARCHRL_TRACE: what plugins do while they load, on stderr and only when asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import succeed
from pytest import MonkeyPatch

from searchrl.plugins import load_plugins

PLUGIN = """
import searchrl

@searchrl.hookimpl
def register_rewards(register):
    register("calm", dict)
    register("loud", dict)

@searchrl.hookimpl
def register_trackers(register):
    register("lazy", "srl_lazy_tracker:make")
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: MonkeyPatch) -> str:
    (tmp_path / "srl_lazy_tracker.py").write_text("def make(run_dir): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    return str(path)


def lines(text: str) -> list[str]:
    """The trace without its seconds, which each line must have."""
    found = [line for line in text.splitlines() if line.startswith("searchrl trace:")]
    matches = [re.fullmatch(r"searchrl trace: +\d+\.\d{4} s  (.*)", line) for line in found]
    return [match[1] for match in matches if match]


def test_trace_shows_imports_hooks_and_lazy_factories_once(
    plugin: str, monkeypatch: MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEARCHRL_TRACE", "1")
    registry = load_plugins([plugin], entry_points=False)
    for _ in range(2):
        registry.get("tracker", "lazy").load()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line for line in lines(captured.err) if line.startswith("plugin mine")] == [
        "plugin mine: import",
        "plugin mine: register_rewards: reward 'calm', reward 'loud'",
        "plugin mine: register_trackers: tracker 'lazy'",
        "plugin mine: tracker 'lazy' imports srl_lazy_tracker",
    ]


def test_trace_shows_where_a_plugin_stops(
    plugin: str, monkeypatch: MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEARCHRL_TRACE", "1")
    Path(plugin).write_text(PLUGIN.replace('register("loud", dict)', "1 / 0"))
    load_plugins([plugin], entry_points=False)
    text = "plugin mine: register_rewards: reward 'calm', then raised ZeroDivisionError"
    assert text in lines(capsys.readouterr().err)
    Path(plugin).write_text("1 / 0")
    load_plugins([plugin], entry_points=False)
    assert "plugin mine: import, then raised ZeroDivisionError" in lines(capsys.readouterr().err)


@pytest.mark.parametrize("value", [None, "", "0"])
def test_nothing_is_printed_when_it_is_off(
    plugin: str, value: str | None, monkeypatch: MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SEARCHRL_TRACE", raising=False)
    if value is not None:
        monkeypatch.setenv("SEARCHRL_TRACE", value)
    load_plugins([plugin], entry_points=False).get("tracker", "lazy").load()
    assert capsys.readouterr().err == ""


def test_trace_leaves_stdout_to_the_command(plugin: str) -> None:
    result = succeed("plugins", "--json", "--plugin", plugin, env={"SEARCHRL_TRACE": "1"})
    assert "searchrl trace:" not in result.stdout
    assert "plugin mine: import" in lines(result.stderr)
