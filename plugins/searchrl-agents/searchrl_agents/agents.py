"""The start of an agent for a rollout: a command in processes of its own, or a function.

Owns what an agent is given, how its end is told, and the errors of a wrong agent. The processes
are the keeper's. A function has the environment and the output of the run.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple

from opentelemetry.propagate import inject

from searchrl import ConfigError, suggest, suggest_path
from searchrl.api_client import read_key, redact
from searchrl_agents.keeper import END_S, end_all

INHERITED = "PATH HOME USER LANG TMPDIR TEMP TMP VIRTUAL_ENV PYTHONPATH CONDA_PREFIX".split()
"""Variables of the run that a command gets, with `LC_*`: no keys."""
_KEYS = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|\d|$)", re.IGNORECASE)
"""Variables that hold a secret, by their names."""
CLOSED = "the agents were closed"


@dataclass(frozen=True, slots=True)
class Start:
    """Input of the agent of one rollout; `task` is JSON with `rollout_id` and `question`."""

    base_url: str
    key: str
    task: str


class Ended(NamedTuple):
    """End of an agent."""

    code: int | None = None
    """Exit status; -9: signal 9. None: a function, or it did not start, or was given up."""
    output: str = ""
    """The last 64 KiB of stdout and stderr in order of arrival; of a function: its traceback."""
    last_line: str = ""
    """The last non-blank line of stdout; of a function: its result, if that is text."""
    error: str = ""
    """Empty if it ended well, else the error in one line."""


class Running:
    """A running agent; several threads may call it."""

    def __init__(self, on_stop: Callable[[], None], key: str) -> None:
        self._on_stop, self.key, self.why = on_stop, key, ""
        self.ended: Future[Ended] = Future()

    def stop(self, why: str) -> Future[Ended]:
        """End it with all its processes; `why` is its error, unless it has ended already."""
        if not self.ended.done():
            self.why = self.why or why
            self._on_stop()
        return self.ended

    def finish(self, ended: Ended) -> None:
        """Record the end; only the first call counts."""
        with suppress(InvalidStateError):
            self.ended.set_result(Ended(*redact(ended._replace(error=self.why or ended.error))))


def make_agent(command: str, *, env: Sequence[str] = ()) -> Agent:
    """Make the agent of a text: a function, or a command, which runs without a shell.

    Args:
        command: `python my_agent.py`, `my_agent.py:function` or `package.module:function`.
        env: further variables of the run that a command gets.

    Raises:
        ConfigError: if the program, file or function is not there; says what to do.
    """
    what = f"agent '{command}'"
    source, _, name = command.rpartition(":")
    is_file = source.endswith(".py") and (" " not in source or Path(source).is_file())
    is_function = name.isidentifier() and (is_file or re.fullmatch(r"[\w.]+", source) is not None)
    try:
        argv = [source] if is_function else shlex.split(command)
    except ValueError:  # an open quotation
        argv = []
    if not argv or (sys.platform == "win32" and not is_function):
        raise ConfigError(f"{what}: expected 'a.py:function' or (on Linux, macOS) 'python a.py'")
    files = [Path(word).absolute() for word in argv if re.fullmatch(r"[^-\s]\S*\.py", word)]
    if files and not files[0].is_file():
        raise ConfigError(f"{what}: there is no file {files[0]}.{suggest_path(files[0])}")
    if is_function:
        return _Functions(what, Path(source).absolute() if is_file else source, name)
    if shutil.which(argv[0]) is None:
        raise ConfigError(
            f"{what}: in {Path.cwd()} there is no program {argv[0]} that can be run; install it, "
            f"`chmod +x` it or write its path, such as {sys.executable}"
        )
    return _Commands(argv, env)


class _Commands:
    def __init__(self, argv: list[str], env: Sequence[str]) -> None:
        names = {*INHERITED, *env, *(name for name in os.environ if name.startswith("LC_"))}
        self._env = {name: os.environ[name] for name in names & os.environ.keys()}
        for name in filter(_KEYS.search, env):
            with suppress(ConfigError):  # it is no key of a server, and a secret all the same
                read_key(name)
        self._argv = argv
        self._lock = Lock()
        self._numbers = itertools.count()
        self._running: dict[int, Running] = {}
        self._left: set[int] = set()
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py"))],
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the run
        )
        assert self._keeper.stdin
        os.set_blocking(self._keeper.stdin.fileno(), False)
        self._listener = Thread(target=self._listen, name="agents", daemon=True)
        self._listener.start()

    def start(self, start: Start) -> Running:
        number = next(self._numbers)
        running = self._running[number] = Running(lambda: self._tell(stop=number), start.key)
        trace: dict[str, str] = {}
        inject(trace)  # its spans join those of the run
        env = self._env | {name.upper(): value for name, value in trace.items()}
        env |= {
            "OPENAI_BASE_URL": start.base_url,
            "OPENAI_API_KEY": start.key,
            "SEARCHRL_TASK": start.task,
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        }
        self._tell(id=number, popen={"args": self._argv, "env": env})
        return running

    def close(self) -> None:
        for one in tuple(self._running.values()):
            one.why = one.why or CLOSED
        self._tell(end=True)
        self._listener.join(END_S)
        if self._listener.is_alive():
            self._end_all()
            self._listener.join(END_S)

    def _tell(self, **command: Any) -> None:
        assert self._keeper.stdin
        line, until = json.dumps(command).encode() + b"\n", time.monotonic() + END_S
        try:
            with self._lock:
                self._keeper.send_signal(signal.SIGCONT)  # an agent may have stopped it
                while line and time.monotonic() < until:
                    try:
                        line = line[os.write(self._keeper.stdin.fileno(), line) :]
                    except BlockingIOError:
                        time.sleep(0.01)
        except (BrokenPipeError, ValueError):
            self._miss_keeper()

    def _listen(self) -> None:
        assert self._keeper.stdin and self._keeper.stdout
        for line in self._keeper.stdout:
            event = json.loads(line)
            self._running.pop(event.pop("id")).finish(Ended(**event))
        if self._keeper.wait():
            self._end_all()
        if self._left:
            print(f"agents that could not be ended: processes {[*self._left]}", file=sys.stderr)
        self._miss_keeper()
        self._keeper.stdout.close()
        with suppress(BrokenPipeError):
            self._keeper.stdin.close()

    def _end_all(self) -> None:
        end_all(self._keeper.pid, [one.key for one in [*self._running.values()]], self._left)

    def _miss_keeper(self) -> None:
        for one in tuple(self._running.values()):
            one.finish(Ended(error="the keeper of the agents has ended; start the run again"))


class _Functions:
    def __init__(self, what: str, source: Path | str, name: str) -> None:
        self._file = str(source)
        try:
            if isinstance(source, Path):
                sys.path.append(str(source.parent))
                spec = importlib.util.spec_from_file_location(f"agent_{source.stem}", source)
                assert spec and spec.loader
                module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            else:
                module = importlib.import_module(source)
                self._file = str(module.__file__)
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"{what} cannot be imported: {self._describe(error)}; correct or install that"
            ) from error
        function = getattr(module, name, None)
        if not callable(function):
            raise ConfigError(f"{what}: there is no function '{name}'.{suggest(name, dir(module))}")
        self._function = function
        self._takes = inspect.signature(function).parameters
        self._takes_all = any(one.kind is one.VAR_KEYWORD for one in self._takes.values())
        self._running: set[Running] = set()

    def start(self, start: Start) -> Running:
        running = Running(lambda: self._give_up(running), start.key)
        self._running.add(running)
        call = (self._call, running, start)
        Thread(target=copy_context().run, args=call, name="agent", daemon=True).start()
        return running

    def close(self) -> None:
        for one in tuple(self._running):
            one.stop(CLOSED)

    def _give_up(self, running: Running) -> None:
        count = 1 + sum(one.ended.done() for one in tuple(self._running))
        running.finish(Ended(output=f"functions that were given up and still run: {count}"))

    def _call(self, running: Running, start: Start) -> None:
        given = {"task": json.loads(start.task), "base_url": start.base_url, "api_key": start.key}
        try:
            taken = {k: v for k, v in given.items() if self._takes_all or k in self._takes}
            said = self._function(**taken)
            if inspect.iscoroutine(said):
                said = asyncio.run(said)
            ended = Ended(last_line=said if isinstance(said, str) else "")
        except BaseException as error:  # `sys.exit` ends the function, not the run
            ended = Ended(output=traceback.format_exc()[-65536:], error=self._describe(error))
        self._running.discard(running)
        running.finish(ended)

    def _describe(self, error: BaseException) -> str:
        """Type, message, and the last place in the agent's own file, if any."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == self._file] or frames
        text = " ".join(str(error).split())[:500]
        return f"{type(error).__name__}: {text} ({own[-1].filename}:{own[-1].lineno})"


Agent = _Commands | _Functions
"""Starts agents (`start`), any number at once; their errors are in `Ended`. `close` ends all."""
