"""`SEARCHRL_TRACE=1`: what plugins do while they load, on stderr.

Owns the lines: one per import of a plugin, per hook call with what it registered, and per import of
a lazy factory, each with its seconds. Without the variable nothing is watched and nothing is timed.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pluggy

from searchrl.plugins.owners import Owner

VARIABLE = "SEARCHRL_TRACE"


def is_on() -> bool:
    """Whether the environment variable is set, to anything but 0."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


@contextmanager
def timing(owner: Owner, what: str) -> Iterator[None]:
    """Print the seconds of a block, and that it raised if it did."""
    if not is_on():
        yield
        return
    start = time.perf_counter()
    try:
        yield
    except BaseException as error:
        _print(owner, f"{what} raised {type(error).__name__}", start)
        raise
    _print(owner, what, start)


def import_lazily(owner: Owner, what: str, module: str) -> ModuleType:
    """Import the module of a lazy factory; one that is not imported yet is timed."""
    if module in sys.modules:
        return importlib.import_module(module)
    with timing(owner, f"{what} imports {module}"):
        return importlib.import_module(module)


def watch_hooks(manager: pluggy.PluginManager, owner: Owner) -> None:
    """Print every hook call of a manager that holds one plugin."""
    if not is_on():
        return
    starts: list[float] = []

    def before(name: str, hooks: Sequence[Any], arguments: Mapping[str, Any]) -> None:
        starts.append(time.perf_counter())

    def after(
        outcome: pluggy.Result[Any], name: str, hooks: Sequence[Any], arguments: Mapping[str, Any]
    ) -> None:
        start = starts.pop()
        if not hooks:
            return
        entries = arguments["register"].entries
        found = ", ".join(f"{entry.kind} '{entry.name}'" for entry in entries) or "nothing"
        fault = f", then raised {type(outcome.exception).__name__}" if outcome.exception else ""
        _print(owner, f"{name}: {found}{fault}", start)

    manager.add_hookcall_monitoring(before, after)


def _print(owner: Owner, what: str, start: float) -> None:
    seconds = time.perf_counter() - start
    print(f"searchrl trace: {seconds:8.4f} s  {owner}: {what}", file=sys.stderr, flush=True)
