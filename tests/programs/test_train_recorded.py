"""Runs whose searches are recorded: none is asked twice, and two are the same to the byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from train_toy import TOY_PLUGIN, settings

from searchrl.errors import BudgetSpent, FailureLimitError
from searchrl.programs.train import train
from searchrl.run_folder import Run

ENGINE = """
import json, urllib.request
from searchrl import hookimpl
from searchrl.contracts import Passage

class Engine:
    def __init__(self, passages, *, url: str):
        self.passages, self.url = passages, url

    def search(self, queries, k):
        # Each task has a corpus of its own.
        body = json.dumps([f"{one} {self.passages}" for one in queries]).encode()
        with urllib.request.urlopen(self.url, body) as answer:
            return [[Passage(**one)] for one in json.load(answer)]

@hookimpl
def register_retrievers(register):
    register("engine", Engine)
"""


@contextmanager
def serving(asked: list[str], at_call: Callable[[], None] = lambda: None) -> Iterator[str]:
    """A server that finds something else each time; `asked` are the queries that it answered."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            at_call()
            asked.extend(queries)
            found = [{"id": f"{len(asked)}-{n}", "text": q} for n, q in enumerate(queries)]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def engine(tmp_path: Path) -> str:
    (tmp_path / "engine.py").write_text(ENGINE)
    return str(tmp_path / "engine.py")


def recorded(model: Path, engine: str, name: str, url: str, **more: Any) -> dict[str, Any]:
    folder = Path(engine).parent
    part = {"name": "recorded", "inner": {"name": "engine", "url": url}, **more}
    part["file"] = str(folder / "found.sqlite")
    plugins = [str(TOY_PLUGIN), engine]
    return settings(model, folder / name, max_steps=3, plugins=plugins, task={"retriever": part})


def ledger(run: Path | Run) -> dict[str, bytes]:
    folder = run.path if isinstance(run, Run) else run
    files = {file.name: file.read_bytes() for file in sorted((folder / "rollouts").iterdir())}
    assert len(files) > 4
    return files


def test_a_budget_ends_a_run_that_goes_on_and_a_second_run_is_the_same_and_asks_nobody(
    micro_model: Path, engine: str, threads_restored: None
) -> None:
    asked: list[str] = []
    with serving(asked) as url:
        limited = recorded(micro_model, engine, "first", url, max_calls=10, price=5)
        with pytest.raises(BudgetSpent, match="max_calls = 10.*--resume") as caught:
            train(limited)
        assert caught.value.exit_code == 4 and len(asked) <= 10
        run = None
        for _ in range(20):
            try:
                run = train(resume=limited["run_dir"])
                break
            except BudgetSpent:
                continue
        assert run is not None and len(asked) == len(set(asked)) > 10
        (counts,) = run.summary["searches"].values()
        assert counts["calls"] == len(asked) and counts["saved"] > 0
        assert counts["cost"] == pytest.approx(len(asked) * 0.005)
        again = train(recorded(micro_model, engine, "second", url))
        assert [counts["calls"] for counts in again.summary["searches"].values()] == [0]
        assert ledger(run) == ledger(again)
    replayed = train(recorded(micro_model, engine, "third", url, replay=True))
    assert ledger(run) == ledger(replayed)
    with pytest.raises(FailureLimitError, match="found.sqlite' has no answer to '"):
        train(recorded(micro_model, engine, "other", url, replay=True) | {"seed": 5})


@pytest.mark.thorough
@pytest.mark.parametrize("at", [3, 9])
def test_a_run_that_is_killed_and_resumed_asks_nobody_twice(
    micro_model: Path, engine: str, at: int
) -> None:
    asked: list[str] = []
    going: list[subprocess.Popen[bytes]] = []

    def kill() -> None:
        if len(asked) == at and len(going) == 1:
            os.kill(going[0].pid, signal.SIGKILL)
            raise ConnectionError("the run is dead, and this call is not answered")

    def start(*words: str) -> int:
        going.append(subprocess.Popen([sys.executable, "-m", "searchrl", "train", *words]))
        return going[-1].wait()

    with serving(asked, kill) as url:
        config = recorded(micro_model, engine, "killed", url)
        file = Path(engine).with_name("config.yaml")
        file.write_text(yaml.safe_dump(config))
        assert start("--config", str(file)) == -signal.SIGKILL
        assert start("--resume", config["run_dir"]) == 0
        assert len(asked) == len(set(asked)) > at
        whole = train(recorded(micro_model, engine, "whole", url))
    assert len(asked) == len(set(asked))
    assert ledger(Path(config["run_dir"])) == ledger(whole)
