"""Chat templates: programs that come with a tokenizer, run where they can do no harm.

transformers runs them in Jinja's sandbox, which lets them loop for years, or double a text until
memory is full. So one runs in a copy of this process with limits.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from searchrl.errors import PolicyError

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

    # A fork has the tokenizer and the libraries in memory already.
    forking = multiprocessing.get_context("fork")
    ours, theirs = forking.Pipe(duplex=False)
    child = forking.Process(target=_answer, args=(render, theirs), daemon=True)
    with warnings.catch_warnings():
        # Newer Pythons warn of locks that other threads hold; the copy takes none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    theirs.close()
    fault, text = f"did not end within {MAX_CPU_S} seconds", ""
    try:
        if ours.poll(MAX_WALL_S):
            fault, _, text = ours.recv_bytes().decode("utf-8", "surrogatepass").partition("\0")
    except EOFError:  # it was stopped
        pass
    finally:
        child.kill()
        child.join()
        ours.close()
    if not fault and len(text) > MAX_CHARACTERS:
        fault = f"writes more than {MAX_CHARACTERS:,} characters"
    if fault:
        raise PolicyError(f"the tokenizer's chat template failed on a plain dialogue: {fault}")
    return text


def _answer(render: Callable[[], str], answers: Connection) -> None:
    """In the copy: send what went wrong, or "", and the text."""
    gc.disable()  # what others own is not ours to tidy up
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    held = Path("/proc/self/statm")
    if held.is_file():
        limit = int(held.read_text().split()[0]) * resource.getpagesize() + MAX_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    fault, text = "", ""
    try:
        text = render()
    except Exception as error:  # it may compute anything: ZeroDivisionError, …
        is_plain = type(error).__module__.startswith("jinja2") and str(error)
        fault = str(error) if is_plain else f"{type(error).__name__}: {error}"
    data = f"{fault[:2000].replace(chr(0), '')}\0{text[: MAX_CHARACTERS + 1]}"
    answers.send_bytes(data.encode("utf-8", "surrogatepass"))
