"""`SEARCHRL_TRACE=1`: what plugins do while they load, on stderr.

Owns the lines: one per import of a plugin, per hook call with what it registered, and per import of
a lazy factory, each with its seconds. Without the variable nothing is timed or printed.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from searchrl.plugins.owners import Owner

if TYPE_CHECKING:
    from searchrl.plugins.registry import Entry


@contextmanager
def timing(owner: Owner, what: str, registered: Sequence[Entry] | None = None) -> Iterator[None]:
    """Print the seconds of a block, what it added to `registered`, and the error that it raised."""
    if os.environ.get("SEARCHRL_TRACE", "0") in ("", "0"):
        yield
        return
    start = time.perf_counter()
    fault = ""
    try:
        yield
    except BaseException as error:
        fault = f", then raised {type(error).__name__}"
        raise
    finally:
        seconds = time.perf_counter() - start
        if registered is not None:
            found = ", ".join(f"{entry.kind} '{entry.name}'" for entry in registered) or "nothing"
            what = f"{what}: {found}"
        text = f"searchrl trace: {seconds:8.4f} s  {owner}: {what}{fault}"
        print(text, file=sys.stderr, flush=True)


def import_lazily(owner: Owner, what: str, module: str) -> ModuleType:
    """Import the module of a lazy factory; one that is not imported yet is timed."""
    if module in sys.modules:
        return importlib.import_module(module)
    with timing(owner, f"{what} imports {module}"):
        return importlib.import_module(module)
