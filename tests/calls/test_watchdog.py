"""Code that holds Python's lock: the process ends, and plugin, file and line are named in time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from searchrl.calls.watchdog_process import Frame, find_culprit, read_stacks
from searchrl.plugins import load_plugins
from searchrl.testing.apart import run_apart
from searchrl.testing.conformance import check_entry
from searchrl.testing.criteria import Status

pytestmark = pytest.mark.thorough

PLUGIN = Path(__file__).resolve().parent.parent / "fixtures" / "holds_lock.py"
REPO = Path(__file__).resolve().parents[2]
LINE = next(n for n, text in enumerate(PLUGIN.read_text().splitlines(), 1) if "the line" in text)
LIMIT_S = 3.0
ENV = {**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}

DUMP = """Timeout (0:00:01)!
Thread 0x00007f1200000001 (most recent call first):
  File "/p/games.py", line 12 in rest
  File "/lib/threading.py", line 982 in run
Thread 0x00007f1200000002 (most recent call first):
  File "/lib/re/__init__.py", line 166 in match
  File "/p/games.py", line 40 in step
Thread 0x00007f1200000003 (most recent call first):
  File "/lib/selectors.py", line 5 in select
"""


def test_the_thread_that_computes_is_the_culprit_not_one_that_sleeps_in_the_same_plugin() -> None:
    stacks = read_stacks(DUMP)
    assert list(stacks) == ["0x7f1200000001", "0x7f1200000002", "0x7f1200000003"]
    names = {"/p/games.py": "plugin games"}
    for computing, line in ((["0x7f1200000002"], 40), (["0x7f1200000001"], 12), ([], 12)):
        culprit = find_culprit(stacks, names, computing)
        assert culprit.who == "plugin games" and culprit.place is not None
        assert culprit.place.line == line
    # Nobody's file: the innermost line of the thread that computes.
    assert find_culprit(stacks, {}, ["0x7f1200000002"]).place == Frame(
        "/lib/re/__init__.py", 166, "match"
    )
    assert find_culprit({}, names, []).place is None


SHORT_RUN = ["--model", "tiny", "--max-steps", "1", "--run-dir", "run"]


def searchrl(folder: Path, *arguments: str, text: str = "") -> tuple[str, float]:
    """Run a command that is going to be ended; what it said, and seconds since the hang began."""
    process = subprocess.run(
        [sys.executable, "-m", "searchrl", *arguments],
        cwd=folder,
        env=ENV,
        input=text,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    ended = time.time()
    assert process.returncode != 0, process.stderr
    return process.stdout + process.stderr, ended - float((folder / "began").read_text())


@pytest.mark.parametrize(
    "arguments",
    [
        ["play", "--env", "holding"],
        ["eval", "--env", "holding", "--policy", "scripted", "--num-tasks", "4"],
        ["train", "--env", "holding", *SHORT_RUN],
        ["train", "--env", "regulations", "--retriever", "holding", *SHORT_RUN],
    ],
    ids=["play", "eval", "train, at the start-up checks", "train"],
)
def test_a_command_is_ended_within_twice_the_limit_and_names_the_line(
    tmp_path: Path, arguments: list[str]
) -> None:
    program, *more = arguments
    asked = [program, "--plugin", str(PLUGIN), *more]
    limit = ["--set", f"rollout.env_timeout_s={LIMIT_S}"]
    said, seconds = searchrl(tmp_path, *asked, *limit, text="s elm hall\n\n")
    assert f"plugin holds_lock did not return within 3 s at {PLUGIN}:{LINE} in hold" in said, said
    assert "Look for a regular expression" in said and "Traceback" not in said
    assert seconds < 2 * LIMIT_S
    has_begun = (tmp_path / "run" / "config.yaml").exists()
    assert has_begun == ("holding" in arguments and "regulations" in arguments)
    assert ("searchrl train --resume run" in said) == has_begun


def test_check_finds_it_within_twice_the_limit_and_keeps_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry = load_plugins([str(PLUGIN)], strict=True)
    run = partial(run_apart, timeout_s=LIMIT_S)
    report = check_entry(registry, registry.get("retriever", "holding"), None, run)
    assert time.time() - float((tmp_path / "began").read_text()) < 2 * LIMIT_S
    first, *others = report.results
    assert first.number == "R1" and first.status is Status.FAILED
    (finding,) = first.findings
    assert "did not return within 3 s and let no other thread run" in finding.what
    assert finding.where == f"{PLUGIN}:{LINE}"
    assert {result.note for result in others} == {"not checked: R1 did not finish"}


ENDS = """
import os
from searchrl import hookimpl

class Ends:
    def __init__(self, passages):
        pass
    def search(self, queries, k):
        if "zeppelin" in queries:
            os._exit(3)
        return [[] for _ in queries]

@hookimpl
def register_retrievers(register):
    register("ends", Ends)
"""


def test_a_plugin_that_ends_the_process_ends_that_of_the_check(tmp_path: Path) -> None:
    path = tmp_path / "ends.py"
    path.write_text(ENDS)
    registry = load_plugins([str(path)], strict=True)
    report = check_entry(registry, registry.get("retriever", "ends"), None, run_apart)
    failed = report.failed[0]
    assert "ended the process of the check (exit status 3)" in failed.findings[0].what
    passed = [result for result in report.results if result.status is Status.PASSED]
    assert passed and re.fullmatch(r"R\d+", failed.number)


MANY = """
import re, time
from searchrl.calls.pool import CallQueue
from searchrl.calls.watchdog import watching

def hold():
    time.sleep(1.0)
    re.match(r"(\\w+\\s?)+XX", "a" * 60)  # the line

def rest():
    time.sleep(2.0)

with watching(2.0, {__file__: "plugin many"}):
    queue = CallQueue(60.0)
    for call in [hold] + [rest] * 150:
        queue.add(call, "env")
    queue.wait_for_all()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which thread computes")
def test_the_line_is_found_among_more_threads_than_faulthandler_writes(tmp_path: Path) -> None:
    """faulthandler writes the hundred newest. And it writes the name of this folder in ASCII."""
    path = tmp_path / "josé" / "many.py"
    path.parent.mkdir()
    path.write_text(MANY, "utf-8")
    process = subprocess.run(
        [sys.executable, str(path)], env=ENV, capture_output=True, check=False, timeout=60
    )
    line = next(n for n, text in enumerate(MANY.splitlines(), 1) if "the line" in text)
    said = process.stderr.decode("utf-8")
    assert f"plugin many did not return within 2 s at {path}:{line} in hold" in said


FORKED = """
import multiprocessing, multiprocessing.util, time
from searchrl.calls.watchdog import watching
with watching(5.0):
    child = multiprocessing.get_context("fork").Process(
        target=time.sleep, args=(60,), daemon=True
    )
    child.start()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no such thing here")
def test_a_child_that_a_plugin_forked_does_not_delay_the_end() -> None:
    """It holds the watchdog's pipe open."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", FORKED], env=ENV, check=True, timeout=50)
    assert time.monotonic() - started < 30


WATCHING_CHILD = """
import os, signal
from searchrl.calls.watchdog import watching
with watching(5.0):
    child = os.fork()
    if not child:
        signal.alarm(15)
        with watching(5.0):
            pass
        os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, "the child hung"
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no such thing here")
def test_a_child_that_was_forked_while_something_is_watched_watches_itself() -> None:
    """It inherits what faulthandler waits for, and not the thread that would let go of it."""
    subprocess.run([sys.executable, "-c", WATCHING_CHILD], env=ENV, check=True, timeout=50)


STOPPED = """
import sys, time
from searchrl.calls.watchdog import watching
with watching(1.0):
    print("ready", flush=True)
    sys.stdin.readline()
    time.sleep(1)
print("alive", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no such signal here")
def test_a_process_that_was_only_stopped_goes_on() -> None:
    """Ctrl-Z and fg: no thread could run for longer than the limit, and nobody is to blame."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENV,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    process.send_signal(signal.SIGCONT)
    said, _ = process.communicate("\n", timeout=60)
    assert said == "alive\n" and process.returncode == 0
