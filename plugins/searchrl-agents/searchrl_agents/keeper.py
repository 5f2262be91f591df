"""The keeper: one process per run that starts its agents and leaves nothing of them behind.

It reads commands as JSON lines (`popen` starts an agent, `stop` ends it; `end`, or the end of the
input, ends all) and writes an event when an agent has ended. It runs by its path and imports the
standard library only: the package would take most of a second.

Each agent has a warden, a fork of the keeper. On Linux a warden is a subreaper: what detaches from
the agent (`setsid`, a daemon) comes to it, so all below it is of this agent, and the agent is over
when nothing is. Elsewhere only the process group is ended, and what left the group lives on.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

MAX_OUTPUT_BYTES = 64 * 1024
"""What is kept of an agent's output: its end."""
KILL_AFTER_S = 2.0
"""From SIGTERM to SIGKILL."""

_AGAIN_S = 0.05
"""Between two SIGKILLs: a process may fork while its relatives are being killed."""
_SIGNALS = (signal.SIGTERM, signal.SIGCHLD)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    """Keep the agents of the process that holds the other ends of standard input and output."""
    # They wait until a warden has its handlers; the keeper itself ends with its input alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    turn = os.pipe()  # holds one byte: the warden that has taken it writes its event
    os.write(turn[1], b".")
    wardens: dict[int, int] = {}
    try:
        for line in sys.stdin.buffer:
            command = json.loads(line)
            if "end" in command:  # the input goes on as long as a fork of the run holds it, too
                break
            if "popen" in command:
                pid = wardens[command["id"]] = os.fork()
                if pid == 0:
                    try:
                        event = {"id": command["id"], **_keep(command)}
                        os.read(turn[0], 1)
                        with suppress(BrokenPipeError):  # the run was killed
                            sys.stdout.buffer.write(json.dumps(event).encode() + b"\n")
                            sys.stdout.buffer.flush()
                        os.write(turn[1], b".")
                    finally:
                        os._exit(0)
            elif command["stop"] in wardens:
                os.kill(wardens[command["stop"]], signal.SIGTERM)
            with suppress(ChildProcessError):
                while ended := os.waitpid(-1, os.WNOHANG)[0]:
                    wardens = {number: pid for number, pid in wardens.items() if pid != ended}
    finally:
        os.killpg(0, signal.SIGTERM)  # the wardens; agents are in groups of their own
        with suppress(ChildProcessError):
            while True:
                os.wait()


def _keep(command: dict[str, Any]) -> dict[str, Any]:
    """Run one agent until nothing of it is left; returns the fields of `Ended`."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the agent would inherit
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # if the keeper is killed
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
    """A text and its last line that is not blank."""
    text = tail.decode(errors="replace")
    return text, next((line.strip() for line in text.split("\n")[::-1] if line.strip()), "")


def _signal_all(agent: int, number: signal.Signals) -> None:
    """Signal all below this process; not on Linux: the group of the agent."""
    if sys.platform != "linux":
        with suppress(OSError):
            os.killpg(agent, number)
        return
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # The program's name stands in brackets and may hold anything; then: state, parent.
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    below = children.get(os.getpid(), [])
    for pid in below:
        below += children.get(pid, [])
        with suppress(OSError):
            os.kill(pid, number)


if __name__ == "__main__":
    main()
