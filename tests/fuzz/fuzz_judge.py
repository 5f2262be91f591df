"""One fuzzed command line: runs it in this process and says what is wrong with what it answers.

Owns what a good answer is. A command line may succeed; otherwise it ends with one error of at most
20 lines that names what is wrong and shows nothing of Python's insides. The modules beside it make
the cases.
"""

from __future__ import annotations

import contextlib
import re
import resource
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import Result
from command_line import call

MAX_LINES = 20
MAX_CHARS = 4000
"""A message beyond this is no clear one, however few lines it has."""
CPU_DEADLINE_S = 5.0
DEADLINE_S = 60.0
"""By the clock, which on a busy machine says little: for what waits instead of working."""
MAX_GROWTH_BYTES = 400 << 20
"""How far one small input may push the peak of the process's memory."""

_INSIDES = re.compile(
    r"Traceback \(most recent|<class '|<function |<built-in|<module '|<lambda>| object at 0x"
    r"|mappingproxy\(|dict_keys\(|PosixPath\(|pydantic|ValidationError|NoneType\b(?! )|input_value="
    r"|<unicode string>|<byte string>|site-packages|yaml\.\w+\.\w+|\bNode\(|set_int_max_str_digits"
)
"""What belongs to Python and its libraries, and tells a user nothing."""


@dataclass(frozen=True, slots=True)
class Case:
    """One input: a command line, and the files beside it."""

    words: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)


class TooSlow(BaseException):
    """A case has not ended in time."""


def judge(case: Case, folder: Path) -> str:
    """What is wrong with the answer to a case; "" if nothing is. `folder` is emptied and used."""
    for old in folder.iterdir():
        shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    for name, data in case.files.items():
        (folder / name).write_bytes(data)
    before = _peak_bytes()
    try:
        with _deadlines():
            result = call(*map(_as_argument, case.words))
    except TooSlow:
        return f"it takes more than {CPU_DEADLINE_S:g} s"
    if (growth := _peak_bytes() - before) > MAX_GROWTH_BYTES:
        return f"it takes {growth >> 20} MiB of memory"
    return find_fault(result)


def find_fault(result: Result) -> str:
    """What is wrong with an answer; "" if nothing is."""
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        return f"a traceback: {type(error).__name__}: {str(error)[:300]}"
    if result.exit_code in (0, 1, 3):  # what was checked or played may have faults
        return ""
    if result.exit_code != 2:
        return f"exit code {result.exit_code}"
    text = result.stderr
    if f"\n{text}".count("\nError: ") != 1:
        return "not exactly one error"
    message = f"\n{text}".partition("\nError: ")[2].rstrip("\n")
    if not message.strip():
        return "an empty message"
    if len(text.splitlines()) > MAX_LINES or len(text) > MAX_CHARS:
        return f"{len(text.splitlines())} lines, {len(text)} characters"
    if inside := _INSIDES.search(text):
        return f"shows Python's insides: {inside.group()!r}"
    return ""


def _as_argument(word: str) -> str:
    """A word as a program receives it: bytes without NUL; those that are no UTF-8 are escaped."""
    data = word.replace("\0", "").encode("utf-8", "surrogatepass")
    return data.decode("utf-8", "surrogateescape")


@contextlib.contextmanager
def _deadlines() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow

    timers = (
        (signal.SIGALRM, signal.ITIMER_REAL, DEADLINE_S),
        (signal.SIGPROF, signal.ITIMER_PROF, CPU_DEADLINE_S),
    )
    before = [signal.signal(number, stop) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
