"""`searchrl serve-retriever` as a user runs it: its address, what it says, its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from retrieval_servers import TOWN

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from searchrl.cli import main

PACKAGE = "searchrl_retrieval"
PLUGIN = """\
import time
from searchrl import hookimpl
from searchrl.retrieval import BM25Retriever

class Slow(BM25Retriever):
    def search(self, queries, k):
        time.sleep(1.0)
        return super().search(queries, k)

@hookimpl
def register_retrievers(register):
    register("slow", Slow)
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in TOWN]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@contextmanager
def served(*words: object, env: dict[str, str] | None = None) -> Iterator[tuple[str, Any]]:
    """The command in a process of its own, from when it answers; its address and the process."""
    command = [sys.executable, "-m", "searchrl", "--plugin", PACKAGE, "serve-retriever"]
    process = subprocess.Popen(
        [*command, "--port", "0", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(env or {})},
        # As from a terminal: a shell ignores SIGINT for what runs in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        found = re.search(r"(http://\S+)/retrieve", line)
        assert found, (line, process.stderr.read())
        yield found[1], process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_when_what_was_begun_is_answered(
    corpus: Path, tmp_path: Path, number: signal.Signals
) -> None:
    plugin = tmp_path / "slow.py"
    plugin.write_text(PLUGIN)
    words = ("--corpus", corpus, "--retriever", "slow", "--plugin", plugin)
    with served(*words) as (url, process):
        answers: list[httpx2.Response] = []

        def ask() -> None:
            body = {"queries": ["pool"], "topk": 1, "return_scores": True}
            answers.append(httpx2.post(f"{url}/retrieve", json=body, timeout=30))

        asking = threading.Thread(target=ask)
        asking.start()
        while httpx2.get(f"{url}/health").json()["requests"] == 0:
            time.sleep(0.02)
        process.send_signal(number)
        asking.join()
        out, err = process.communicate(timeout=30)
    assert answers[0].status_code == 200
    assert answers[0].json()["result"][0][0]["document"]["id"] == "p2"
    assert process.returncode == 128 + number
    assert err.rstrip().endswith("Interrupted.") and "Traceback" not in out + err


def test_other_machines_reach_it_only_if_that_is_asked_for(corpus: Path) -> None:
    with served("--corpus", corpus, "--retriever", "bm25", "--host", "0.0.0.0") as (_, process):
        process.terminate()
        _, err = process.communicate(timeout=30)
    (warning,) = [line for line in err.splitlines() if line.startswith("warning:")]
    assert "0.0.0.0 can be reached from other machines" in warning and "--key-env" in warning


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to search: give --index DIR or --corpus PATH"),
        (["--retriever", "bm25", "--set", "retriever.k1=2"], "nothing to search"),
        (["--corpus", "/no/such/file"], "no such corpus"),
        (["--corpus", "x", "--retriever", "bn25"], "Did you mean 'bm25'"),
        (["--corpus", "x", "--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY.*is not set"),
        (["--corpus", "x", "--topk", "7", "--max-k", "5"], "--topk 7 is more than --max-k 5"),
        (["--corpus", "x", "--host", "no.such.host.invalid"], "--host no.such.host.invalid"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(words: list[str], said: str) -> None:
    line = ["--plugin", PACKAGE, "serve-retriever", "--port", "0", *words]
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 2 and "Traceback" not in result.output, result.output
    assert re.search(said, result.stderr)
