"""Agents as a rollout starts them: what they get, how they end, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from searchrl_agents.agents import Agent, Ended, Start, make_agent
from searchrl_agents.wire import Chat, read_body

from searchrl import ConfigError

START = Start("http://127.0.0.1:1/v1", "key-1", '{"rollout_id": "r1", "question": "Wer?"}')
# A shell's grandchild that has left the session and lost its parent; `deaf`: it ignores SIGTERM.
DETACHES = """\
(setsid sh -c '[ $0 = deaf ] && trap "" TERM; echo $$ > new; mv new pid; sleep 60' $1 &)
while [ ! -e pid ]; do sleep 0.01; done
[ $1 = ends ] || sleep 60
"""
FUNCTIONS = """\
import sys, time
from beside import WORD
calls = []
def answers(task, api_key):
    calls.append(task["question"])
    return f"{WORD} {calls} {api_key}"
async def later(**given):
    return " ".join(sorted(given))
def raises():
    return [][3]
def leaves():
    sys.exit("no")
def sleeps():
    time.sleep(20)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is not found")


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Agent]]:
    """Makes agents, with a text for `my_agent.py`; closes them."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "beside.py").write_text("WORD = 'beside'")
    made: list[Agent] = []

    def make(command: str, program: str = "") -> Agent:
        (tmp_path / "my_agent.py").write_text(program)
        made.append(make_agent(command.format(python=sys.executable), env=["SERPER"]))
        return made[-1]

    yield make
    for one in made:
        one.close()


def end_of(agent: Agent) -> Ended:
    return agent.start(START).ended.result(30)


def wait_for(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.01)


def detached(folder: Path, name: str = "pid") -> int:
    wait_for(lambda: (folder / name).exists() and bool((folder / name).read_text()))
    return int((folder / name).read_text())


def is_alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_a_command_gets_its_variables_and_no_key_of_the_user(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., Agent]
) -> None:
    theirs = {"HOME": "/h", "USER": "u", "LC_TIME": "C", "SERPER": "s", "PATH": "/usr/bin:/bin"}
    monkeypatch.setattr("os.environ", theirs | {"OPENAI_API_KEY": "secret", "HF_TOKEN": "s"})
    found = dict(line.split("=", 1) for line in end_of(make("env")).output.splitlines())
    assert found == theirs | {
        "OPENAI_BASE_URL": START.base_url,
        "OPENAI_API_KEY": "key-1",
        "SEARCHRL_TASK": START.task,
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


def test_spans_of_an_agent_join_those_of_the_run(make: Callable[..., Agent]) -> None:
    program = "import os\nfrom opentelemetry.trace import get_current_span\n"
    program += "def spans(): return str(get_current_span().get_span_context().span_id)"
    with use_span(NonRecordingSpan(SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1)))):
        assert end_of(make("sh -c 'echo $TRACEPARENT'")).last_line == f"00-{1:032x}-{2:016x}-01"
        assert end_of(make("my_agent.py:spans", program)).last_line == "2"


def test_a_secret_of_an_agent_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SERPER_KEY", "s3/cr3t")
    monkeypatch.setenv("MAX_TOKENS", "77")
    command = "sh -c 'echo $SERPER_KEY >&2; echo $MAX_TOKENS $SERPER_KEY'"
    agent = make_agent(command, env=["SERPER_KEY", "MAX_TOKENS"])
    ended = end_of(agent)
    agent.close()
    assert ended.last_line == "77 [key]" and ended.output.count("[key]") == 2
    assert "s3/cr3t" not in str(ended)
    chat = read_body(Chat, rb'{"messages": [{"role": "user", "content": "s3\/cr3t is wrong"}]}')
    assert chat.messages[0].content == "[key] is wrong"
    assert read_body(dict, b'{"query": "s3/cr3t"}') == {"query": "[key]"}


def test_a_crash_has_its_output_and_its_status(make: Callable[..., Agent]) -> None:
    crash = "import sys\nprint('half' + sys.stdin.read() + '\\n ', flush=True)\nraise KeyError('a')"
    ended = end_of(make("{python} my_agent.py", crash))
    assert ended.output.startswith("half\n \nTraceback")
    assert ended[::2] == (1, "half") and ended.error == "exit status 1: KeyError: 'a'"
    assert end_of(make("sh -c 'kill -9 $$'")) == Ended(-9, "", "", "ended by signal 9 (Killed)")


def test_only_the_end_of_the_output_is_kept(make: Callable[..., Agent]) -> None:
    text = "import sys\nfor _ in range(64): sys.stdout.buffer.write(b'x' * 9999 + b'\\n')\n"
    text += "sys.stdout.buffer.write(b'answer \\xff\\n\\n')"
    ended = end_of(make("{python} my_agent.py", text))
    assert len(ended.output) == 64 * 1024 and ended.output.endswith("x\nanswer \ufffd\n\n")
    assert (ended.code, ended.error, ended.last_line) == (0, "", "answer \ufffd")


@linux
@pytest.mark.parametrize("how", ["stop", "close", "ends"])
def test_what_has_detached_from_an_agent_ends_with_it(
    make: Callable[..., Agent], tmp_path: Path, how: str
) -> None:
    agent = make("sh my_agent.py " + how.replace("stop", "deaf"), DETACHES)
    running = agent.start(START)
    pid = detached(tmp_path)
    if how == "stop":
        assert not running.ended.done() and running.stop("too slow").result().error == "too slow"
    elif how == "close":
        agent.close()
        assert running.ended.result(0).error == "the agents were closed"
    else:
        assert running.ended.result(30) == Ended(0, "", "", "")
    assert not is_alive(pid)


@linux
@pytest.mark.parametrize(
    "does",
    [
        "kill -STOP $PPID",
        "kill -9 $PPID",
        "kill -STOP $KEEPER",
        "kill -STOP $PPID $KEEPER",
        "kill -9 $KEEPER $PPID",
        "kill -STOP $PPID; kill -9 $KEEPER",
        "(while :; do kill -STOP $PPID; done) &",
    ],
)
def test_an_agent_that_stops_or_kills_who_watches_it_ends_with_the_run(
    make: Callable[..., Agent], tmp_path: Path, does: str
) -> None:
    """With what has detached from it."""
    hostile = f"KEEPER=$(cut -d ' ' -f 4 /proc/$PPID/stat)\necho $$ > own\n{does}\n> done; sleep 60"
    agent = make("sh my_agent.py", DETACHES.replace("[ $1 = ends ] || sleep 60", hostile))
    running = agent.start(START)
    pids = [detached(tmp_path, name) for name in ("pid", "own")]
    # What it did may have ended it at once.
    wait_for(lambda: (tmp_path / "done").exists() or not is_alive(pids[1]))
    agent.close()
    assert running.ended.result(0).error and not any(map(is_alive, pids))


@linux
def test_what_could_not_be_ended_is_said(
    make: Callable[..., Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setattr("searchrl_agents.keeper.signal_each", lambda *_: None)
    agent = make("sh my_agent.py", "kill -STOP $PPID; echo $PPID > pid; kill -9 $$")
    agent.start(START)
    warden = detached(tmp_path)
    psutil.Process(warden).parent().kill()
    agent.close()
    os.kill(warden, signal.SIGKILL)
    assert capfd.readouterr().err == f"agents that could not be ended: processes [{warden}]\n"


@linux
@pytest.mark.parametrize("whom", ["run", "keeper"])
def test_all_ends_when_the_run_or_the_keeper_is_killed(tmp_path: Path, whom: str) -> None:
    (tmp_path / "my_agent.py").write_text(DETACHES)
    text = "from searchrl_agents.agents import *\n"
    text += "make_agent('sh my_agent.py run').start(Start('u', 'k', '{}')).ended.result(60)"
    with subprocess.Popen([sys.executable, "-c", text], cwd=tmp_path) as run:
        pid = detached(tmp_path)
        (keeper,) = psutil.Process(run.pid).children()
        below = [one.pid for one in (keeper, *keeper.children(recursive=True))]
        assert pid in below
        (run if whom == "run" else keeper).send_signal(signal.SIGKILL)
        wait_for(lambda: not any(map(is_alive, below)))


def test_64_at_once_leave_no_process_thread_or_descriptor(make: Callable[..., Agent]) -> None:
    own = psutil.Process()
    before = own.num_fds(), threading.active_count(), own.children()
    agent = make("sh -c 'echo $OPENAI_API_KEY; exec sleep 60'")
    started = [agent.start(Start("u", f"key-{n}", "{}")) for n in range(64)]
    wait_for(lambda: [one.name() for one in own.children(recursive=True)].count("sleep") == 64)
    agent.close()
    assert [one.ended.result(0).last_line for one in started] == [f"key-{n}" for n in range(64)]
    # What earlier tests held may be closed meanwhile.
    assert own.num_fds() <= before[0] and threading.active_count() <= before[1]
    assert own.children() == before[2]
    assert "the keeper of the agents has ended" in end_of(agent).error


def test_functions_get_what_they_take_and_say_where_they_raise(
    make: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = make("functions.py:answers")
    assert [end_of(agent), end_of(agent)][1] == Ended(last_line="beside ['Wer?', 'Wer?'] key-1")
    assert end_of(make("functions.py:later")).last_line == "api_key base_url task"
    ended = end_of(make("functions.py:raises"))
    assert ended.error == f"IndexError: list index out of range ({tmp_path}/functions.py:10)"
    assert end_of(make("functions.py:leaves")).error.startswith("SystemExit: no (")
    assert end_of(make("platform:system")).error == ""


def test_a_function_that_is_stopped_is_given_up_and_counted(make: Callable[..., Agent]) -> None:
    agent = make("functions.py:sleeps")
    one, two = agent.start(START), agent.start(START)
    assert not one.ended.done() and one.stop("too slow").result(0).error == "too slow"
    agent.close()
    said = "functions that were given up and still run: 2"
    assert two.ended.result(0) == Ended(output=said, error="the agents were closed")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python 'my", ["'a.py:function'", "'python a.py'"]),
        ("pyhton functions.py", ["no program pyhton", "install"]),
        ("./functions.py", ["functions.py", "chmod +x"]),
        ("{python} function.py --fast", ["function.py", "Did you mean", "functions.py"]),
        ("function.py:answers", ["function.py", "Did you mean", "functions.py"]),
        ("functions.py:answer", ["'answer'", "Did you mean 'answers'?"]),
        ("no_such.module:f", ["ModuleNotFoundError", "no_such", "install"]),
        ("my_agent.py:f", ["my_agent.py:2", "ZeroDivisionError"]),
    ],
)
def test_a_wrong_agent_is_refused_with_what_to_do(
    make: Callable[..., Agent], command: str, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        make(command, "\n1 / 0")
    assert [word for word in words if word not in str(caught.value)] == []
