"""Chat templates: programs that come with a tokenizer, run where they can do no harm.

A template is Jinja. transformers runs it in Jinja's sandbox, which keeps it from files and from
Python, but lets it loop for years, or double a text until memory is full. Some of it (`9**9**9`)
cannot be given up by Python once it has begun. So it runs in a copy of this process that may
compute for a few seconds, take a little memory and answer so much. Owns those limits.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from searchrl.errors import PolicyError
from searchrl.tool_calls import DeadlineExceeded, call_with_deadline

MAX_CPU_S = 3
"""Seconds of computing for a dialogue of a few words; real templates take a hundredth of one."""

MAX_WALL_S = 60.0
"""Seconds by the clock: a busy machine may keep a process waiting."""

MAX_CHARACTERS = 200_000
"""Of a template, and of what it makes of a few words."""

MAX_MEMORY = 2**30
"""Bytes that it may take."""


def apply_template(tokenizer: Any, messages: Sequence[Mapping[str, str]], *, thinking: bool) -> str:
    """The text of a dialogue whose next turn is the assistant's.

    Raises:
        PolicyError: the template fails, does not end, or writes without end.
    """
    if len(str(tokenizer.chat_template)) > MAX_CHARACTERS:
        raise PolicyError(
            f"the tokenizer's chat template has more than {MAX_CHARACTERS:,} characters; no real "
            "one has. Set another `chat_template` on the tokenizer, or none"
        )

    def render() -> str:
        return str(
            tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=thinking
            )
        )

    fault, text = _answer_apart(render) if hasattr(os, "fork") else _answer_here(render)
    if not fault and len(text) > MAX_CHARACTERS:
        fault = f"writes more than {MAX_CHARACTERS:,} characters"
    if fault:
        raise PolicyError(f"the tokenizer's chat template failed on a plain dialogue: {fault}")
    return text


def _answer(render: Callable[[], str]) -> tuple[str, str]:
    """What went wrong, or "", and the text."""
    from jinja2.exceptions import TemplateError

    try:
        return "", render()
    except TemplateError as error:
        return str(error) or type(error).__name__, ""
    except Exception as error:  # it may compute anything: ZeroDivisionError, …
        return f"{type(error).__name__}: {error}", ""


def _answer_here(render: Callable[[], str]) -> tuple[str, str]:
    """The same without a process of its own, where none can be copied: memory has no limit."""
    try:
        return call_with_deadline(
            _answer, render, timeout_s=MAX_CPU_S, owner="the tokenizer's chat template"
        )
    except DeadlineExceeded:
        return f"did not end within {MAX_CPU_S} seconds", ""


def _answer_apart(render: Callable[[], str]) -> tuple[str, str]:
    """Ask a copy of this process, which has the tokenizer and the libraries in memory already."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn of locks that other threads hold; the copy takes none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _be_the_copy(render, writing)
    os.close(writing)
    try:
        data, is_whole = _read(reading)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if len(data) > 4 * MAX_CHARACTERS:
        return f"writes more than {MAX_CHARACTERS:,} characters", ""
    if not is_whole or not data:
        return f"did not end within {MAX_CPU_S} seconds", ""
    fault, _, text = data.decode("utf-8", "surrogatepass").partition("\0")
    return fault, text


def _read(descriptor: int) -> tuple[bytes, bool]:
    """What comes through a pipe, and whether it ended; not much more than an answer can be."""
    data, ends = bytearray(), time.monotonic() + MAX_WALL_S
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    while len(data) <= 4 * MAX_CHARACTERS:
        if not poll.poll(max(0.0, ends - time.monotonic()) * 1000):
            return bytes(data), False
        part = os.read(descriptor, 65536)
        if not part:
            return bytes(data), True
        data += part
    return bytes(data), False


def _be_the_copy(render: Callable[[], str], writing: int) -> None:
    """Answer and end, without any of the business of the process that this is a copy of."""
    try:
        import resource

        gc.disable()  # what others own is not ours to tidy up
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        held = Path("/proc/self/statm")
        if held.is_file():
            pages = int(held.read_text().split()[0])
            limit = pages * resource.getpagesize() + MAX_MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        fault, text = _answer(render)
        data = f"{fault[:2000].replace(chr(0), '')}\0{text[: MAX_CHARACTERS + 1]}"
        left = memoryview(data.encode("utf-8", "surrogatepass"))
        while left:
            left = left[os.write(writing, left) :]
    finally:
        os._exit(0)
