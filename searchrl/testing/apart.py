"""A check in a process of its own: what a plugin does to that process is a finding, like any other.

Owns the way there and back. A plugin may hold Python's lock for good, crash in a C library, or end
the process: the criterion that it did this in does not hold, those before it keep their results,
and those after it are not checked. Caller: `searchrl check`. Authors' tests check where they are.
"""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from searchrl.calls.watchdog import watching
from searchrl.errors import PluginError
from searchrl.plugins import reload_plugins
from searchrl.plugins.registry import PluginSpec
from searchrl.testing.conformance import criteria_of
from searchrl.testing.criteria import (
    TIMEOUT_S,
    Criterion,
    Finding,
    Outcome,
    Result,
    find_place,
    run_criteria,
)
from searchrl.testing.kit.subject import Subject

_ASKED, _OUTCOMES, _REPORT = "asked", "outcomes", "report"
"""Files of the folder that both processes share."""

_CODE = (
    "import pickle, sys; from pathlib import Path; "
    f"sys.path[:], asked = pickle.loads(Path(sys.argv[1], {_ASKED!r}).read_bytes()); "
    "from searchrl.testing.apart import serve; serve(sys.argv[1], asked)"
)


def run_apart(subject: Subject, timeout_s: float = TIMEOUT_S) -> tuple[Result, ...]:
    """Check a subject against the criteria of its kind in another process; what it prints is shown.

    Raises:
        PluginError: if the other process cannot load the plugin.
    """
    entry = subject.entry
    file, line = entry.owner.file, entry.line
    name = entry.qualified + entry.argument
    with tempfile.TemporaryDirectory() as folder:
        asked = (subject.registry.spec(), entry.kind, name, dict(subject.settings), timeout_s)
        Path(folder, _ASKED).write_bytes(pickle.dumps((sys.path, asked)))
        done = subprocess.run(
            [sys.executable, "-P", "-c", _CODE, folder],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        sys.stderr.write(done.stdout + done.stderr)
        kept = Path(folder, _OUTCOMES)
        if not kept.is_file():
            last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise PluginError(f"another process could not do the same: {last[0]}")
        outcomes: list[Outcome] = pickle.loads(kept.read_bytes())
        wanted = criteria_of(entry.kind)
        if len(outcomes) < len(wanted):
            told = Path(folder, _REPORT)
            report = json.loads(told.read_text("utf-8")) if told.is_file() else None
            one = wanted[len(outcomes)]
            outcomes.append(_explain(one, report, done.returncode, timeout_s, (file, line)))
        return run_criteria(wanted, subject, file=file, line=line, done=outcomes)


def serve(folder: str, asked: tuple[PluginSpec, str, str, Mapping[str, Any], float]) -> None:
    """What the other process does: check, and keep what has come out so far."""
    spec, kind, name, settings, timeout_s = asked
    registry = reload_plugins(spec)
    entry = registry.get(kind, name)
    file, subject = entry.owner.file, Subject.of(registry, entry, settings)

    def keep(outcomes: Sequence[Outcome]) -> None:
        new = Path(folder, f"{_OUTCOMES}.new")
        new.write_bytes(pickle.dumps(list(outcomes)))
        new.replace(Path(folder, _OUTCOMES))

    keep([])
    with watching(timeout_s, {file: str(entry.owner)}, str(Path(folder, _REPORT))):
        run_criteria(
            criteria_of(kind), subject, file=file, line=entry.line, timeout_s=timeout_s, keep=keep
        )


def _explain(
    one: Criterion,
    report: Mapping[str, Any] | None,
    status: int,
    timeout_s: float,
    registered: tuple[str, int],
) -> Outcome:
    """The outcome of the criterion in which the other process ended."""
    if report is None:
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        what = f"it ended the process of the check ({how})"
        fix = "raise an exception in its place; if it is a C library that crashes, report it there"
        finding = Finding(what, fix, *registered)
    else:
        what = (
            f"it did not return within {timeout_s:g} s and let no other thread run: it holds "
            "Python's lock, so a run could not give the call up and would be ended"
        )
        fix = (
            "look for a regular expression that backtracks, or a call into a C library without a "
            "bound; give it one, or run it in a process of its own"
        )
        place = tuple(report["place"][:2]) if report["who"] else None
        finding = Finding(what, fix, *find_place(place, *registered))
    return Outcome(one.result(finding), is_hanging=True)
