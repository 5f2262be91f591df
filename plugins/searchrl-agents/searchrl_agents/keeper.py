"""The keeper: one process per run that starts its agents and leaves nothing of them behind.

It reads commands as JSON lines (`popen` starts an agent, `stop` ends it; `end`, or the end of the
input, ends all) and writes an event when an agent has ended. It runs by its path and imports the
standard library only: the package would take most of a second.

Each agent has a warden, a fork of the keeper. On Linux both are subreapers: what detaches from the
agent (`setsid`, a daemon) comes to its warden, and what a killed warden leaves to the keeper. The
agent is over when nothing is below its warden. Agents may stop or kill either: every wait has a
limit, and the run itself looks for what is left (`end_all`). Elsewhere only the process group is
ended, and what left the group lives on.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import chain
from typing import IO, Any, NoReturn

MAX_OUTPUT_BYTES = 64 * 1024
"""Bytes kept of an agent's output: its end."""
KILL_AFTER_S = 2.0
"""Time from SIGTERM to SIGKILL of an agent; at the end, twice that for wardens."""
END_S = 4 * KILL_AFTER_S
"""Time that the run waits for the keeper."""

_AGAIN_S = 0.05
"""Time between two SIGKILLs: a process may fork while its relatives are being killed."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    """Keep the agents of the process that holds the other ends of standard input and output."""
    # Signals wait until a warden has its handlers; the keeper ends only with its input.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    woken = _wake_on(signal.SIGCHLD)
    _adopt(signal.SIGCONT)
    wardens: dict[int, tuple[int, IO[bytes]]] = {}
    rest, orphans, ended_at = b"", [0][:0], 0.0
    while not ended_at or wardens or orphans:
        wait_s = _AGAIN_S if ended_at or orphans else None
        ready = select.select([woken] if ended_at else [woken, 0], [], [], wait_s)[0]
        if woken in ready:
            os.read(woken, 1 << 10)
        if 0 in ready:
            chunk = os.read(0, 1 << 16)
            *lines, rest = (rest + chunk).split(b"\n")
            for command in map(json.loads, lines):
                if "popen" in command:
                    report: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
                    wardens[os.fork() or _watch(command, report)] = command["id"], report
                elif "stop" in command:
                    _stop(p for p, (number, _) in wardens.items() if number == command["stop"])
                else:  # the input goes on as long as a fork of the run holds it, too
                    chunk = b""
            if not chunk:
                ended_at = time.monotonic()
                _stop(wardens)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in wardens and not _tell(*wardens.pop(ended[0]), ended[1]):
                    orphans.append(ended[0])
        if orphans:
            orphans = below([os.getpid()], processes(), spared=wardens)
            signal_each(orphans, signal.SIGKILL)
        late_s = time.monotonic() - ended_at if ended_at else 0.0
        if late_s > 2 * KILL_AFTER_S:
            signal_each(wardens, signal.SIGKILL)
        if late_s > 3 * KILL_AFTER_S:
            sys.exit(f"agents that could not be ended: processes {orphans or [*wardens]}")


def _stop(wardens: Iterable[int]) -> None:
    for pid in wardens:
        signal_each([pid], signal.SIGTERM)
        signal_each([pid], signal.SIGCONT)  # its agent may have stopped it


def _watch(command: dict[str, Any], report: IO[bytes]) -> NoReturn:
    """Run as a warden, which leaves the fields of `Ended` in a file."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)  # or the run does not see the end of the keeper
        report.write(json.dumps(_keep(command)).encode())
        report.flush()
        code = 0
    finally:
        os._exit(code)


def _tell(number: int, report: IO[bytes], status: int) -> bool:
    """Write the event of an agent that ended; False if its warden did not see its end."""
    with report:
        report.seek(0)
        said = report.read()
    code = os.waitstatus_to_exitcode(status)
    error = {"error": f"the process that watches it was killed (status {code}), and so was it"}
    event = {"id": number, **(error if code else json.loads(said))}
    try:
        sys.stdout.buffer.write(json.dumps(event).encode() + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # the run was killed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return not code


def _wake_on(*numbers: signal.Signals) -> int:
    """Return a file that gives the numbers of signals, which then do nothing else."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in numbers:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which an agent would inherit
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    return woken


def _adopt(signal_of_death: signal.Signals) -> None:
    """Become the parent of all orphans below, and get a signal when the parent dies."""
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, signal_of_death, 0, 0, 0)


def _keep(command: dict[str, Any]) -> dict[str, Any]:
    """Run one agent until all its processes ended; return the fields of `Ended`."""
    woken = _wake_on(signal.SIGTERM, signal.SIGCHLD)
    _adopt(signal.SIGTERM)
    (stdout, its_stdout), (stderr, its_stderr) = os.pipe(), os.pipe()
    try:
        started = subprocess.Popen(  # kept: once it is collected it may reap the agent itself
            **command["popen"],
            stdin=subprocess.DEVNULL,
            stdout=its_stdout,
            stderr=its_stderr,
            start_new_session=True,
        )
    except (OSError, ValueError) as problem:
        return {"error": f"could not be started: {problem}"}
    agent, output, said = started.pid, bytearray(), bytearray()
    code, is_over, next_signal, due = 0, False, signal.SIGTERM, 0.0

    def take(fds: list[int]) -> None:
        for fd in fds:
            chunk = os.read(fd, 1 << 20)  # no pipe holds more
            for tail in (output, said) if fd == stdout else (output,):
                tail += chunk
                del tail[:-MAX_OUTPUT_BYTES]

    while True:
        wait_s = max(0.0, due - time.monotonic()) if is_over else None
        ready = select.select([stdout, stderr, woken], [], [], wait_s)[0]
        if woken in ready:
            ready.remove(woken)
            is_over |= signal.SIGTERM in os.read(woken, 1 << 10)
        take(ready)
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == agent:
                    code, is_over = os.waitstatus_to_exitcode(found[1]), True
        except ChildProcessError:
            break
        if is_over and time.monotonic() >= due:
            _signal_all(agent, next_signal)
            due = time.monotonic() + (KILL_AFTER_S if next_signal == signal.SIGTERM else _AGAIN_S)
            next_signal = signal.SIGKILL
    if sys.platform != "linux":
        _signal_all(agent, signal.SIGKILL)
    take(select.select([stdout, stderr], [], [], 0)[0])
    text, last_line = _decode(output)
    error = f"exit status {code}: {last_line[:300] or 'it wrote nothing'}" if code else ""
    if code < 0:
        error = f"ended by signal {-code} ({signal.strsignal(-code)})"
    return {"code": code, "output": text, "last_line": _decode(said)[1], "error": error}


def _decode(tail: bytearray) -> tuple[str, str]:
    text = tail.decode(errors="replace")
    return text, next((line.strip() for line in text.split("\n")[::-1] if line.strip()), "")


def _signal_all(agent: int, number: signal.Signals) -> None:
    """Signal all processes below this one; without Linux, the agent's group."""
    alive = processes()
    signal_each(below([os.getpid()], alive) if alive else [-agent], number)


def signal_each(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes, some of which may have ended."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def processes() -> dict[int, tuple[int, int]]:
    """Parent and session of each running process, by id; empty without Linux."""
    alive = {}
    for name in filter(str.isdigit, os.listdir("/proc") if sys.platform == "linux" else ()):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # The program's name stands in brackets and may hold anything.
            state, parent, _, session = file.read().rpartition(b")")[2].split()[:4]
            if state not in b"ZX":
                alive[int(name)] = int(parent), int(session)
    return alive


def below(
    roots: Iterable[int], alive: dict[int, tuple[int, int]], spared: Collection[int] = ()
) -> list[int]:
    """Processes below some, without spared ones and those below these."""
    pids: list[int] = []
    for root in chain(roots, pids):
        pids += [pid for pid, (parent, _) in alive.items() if parent == root and pid not in spared]
    return pids


def end_all(keeper: int, keys: Iterable[str], pids: set[int]) -> None:
    """End a keeper that hangs or was killed, and all its processes; Linux only.

    They are below it, in its session, or have a key in their environment. `pids` is filled with
    them, and at the end holds those that could not be ended.
    """
    marks = {f"OPENAI_API_KEY={key}".encode() for key in keys}
    until = time.monotonic() + KILL_AFTER_S
    while True:
        alive = processes()
        for pid, (_, session) in alive.items():
            with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
                if not marks.isdisjoint(file.read().split(b"\0")):
                    pids.add(pid)
            if session == keeper:
                pids.add(pid)
        pids.update(below([*pids], alive))
        pids &= alive.keys() - {keeper, os.getpid()}
        if not pids or time.monotonic() > until:
            break
        signal_each(pids, signal.SIGKILL)
        time.sleep(_AGAIN_S)
    signal_each([keeper] * (keeper in alive), signal.SIGKILL)


if __name__ == "__main__":
    main()
