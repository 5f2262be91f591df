"""docs/how-to/retrieval.md: its commands run, and its keys and flags are those of the command.

The core's tests of its docs have no plugin; here every command of the page is run as printed.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from judged_toy import write_beir, write_pool

from searchrl.cli import main

pytest.importorskip("ir_measures")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "retrieval.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


def commands() -> list[str]:
    lines = "".join(blocks("bash")).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.startswith("searchrl retrieve-eval ")]


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_page_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_beir(tmp_path / "data" / "scifact")
    write_pool(tmp_path / "data" / "pool")
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    result = CliRunner().invoke(main, ["--plugin", "searchrl_retrieval", *words])
    assert result.exit_code == 0, result.output
