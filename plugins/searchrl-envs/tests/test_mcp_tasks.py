"""`searchrl mcp tasks`: drafts from an endpoint, of which only whole ones are kept."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fixtures.openai_server import OpenAIServer

from searchrl.cli import main

pytest.importorskip("mcp", reason="the extra mcp is not installed")
SERVER = f"{sys.executable} {Path(__file__).with_name('mcp_server.py')}"
GOOD = '{"question": "1 + 2?", "answers": ["3"], "calls": [{"name": "add", "arguments": {"a": 1}}]}'
REPLY = f'Here:\n```\n{GOOD}\n{GOOD.replace("add", "ad")}\n{{"question": ""}}\n```'


def test_drafts_that_fit_are_written_and_a_file_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    out = tmp_path / "tasks.jsonl"
    with OpenAIServer(lambda body: REPLY) as asked:
        words = ["mcp", "tasks", SERVER, "--base-url", asked.url, "--model", "m"]
        words += ["--n", "11", "--out", str(out)]
        told = CliRunner().invoke(main, words)
        assert "1 tasks of 11, 2 lines left out" in told.stdout, told
        assert '"add"' in str(asked.bodies) and "Write 11 " in str(asked.bodies)
        before = out.read_text()
        assert before == GOOD.replace(": ", ":").replace(", ", ",") + "\n"
        assert "use --force" in CliRunner().invoke(main, words).stderr
        assert out.read_text() == before
    with OpenAIServer(lambda body: "I cannot do that.") as asked:
        words[4] = asked.url
        told = CliRunner().invoke(main, [*words, "--force"])
        assert "begins: 'I cannot do that.'" in told.stderr and out.read_text() == before
