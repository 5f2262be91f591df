"""Criteria of trackers: T1 to T6, over the metrics of a short run."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from searchrl.contracts import Metric
from searchrl.contracts.watching import Tracker
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import Problem, criterion, find_missing
from searchrl.testing.kit.fuzz import catch
from searchrl.testing.kit.subject import Subject
from searchrl.testing.kit.surroundings import away

Logged = tuple[int, dict[str, Metric], str]
"""The arguments of `log`: step, metrics, phase."""


def sample_log(first: int = 1, last: int = 3) -> Iterator[Logged]:
    """The log of a run of some steps: metrics that come and go, some without an interval."""

    def metric(value: float, n: int = 8) -> Metric:
        return Metric(value=value, low=value - 0.1, high=value + 0.1, n=n)

    for step in range(first, last + 1):
        train = {
            "reward": metric(0.1 * step),
            "reward/0.2*format+em": metric(0.5),
            "task/handbücher/图书馆": metric(1.0),
        }
        if step > 1:
            train["num_tokens"] = Metric(value=float(10**12), n=0)
            train["learning_rate"] = Metric(value=1e-300, n=1)
        if step % 2:
            train["only at times"] = metric(-3.0, n=1)
        yield step, train, "train"
        if step % 2 == 0:
            yield step, {"reward": metric(0.2), "em/forced": metric(0.0)}, "eval"


@contextlib.contextmanager
def _begin(subject: Subject) -> Iterator[tuple[Any, Path, list[str]]]:
    """A tracker of a run in a folder of its own, without network; in the end, its other files."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, away() as files:
        run_dir = Path(folder).resolve()
        yield subject.make(run_dir), run_dir, files


@criterion("T1")
def _logs_a_run(subject: Subject) -> Iterator[Problem]:
    with _begin(subject) as (tracker, *_):
        if problems := [*find_missing(tracker, "log", "close")]:
            yield from problems
            return
        tracker.log(*next(sample_log()))
        tracker.close()


@criterion("T2")
def _takes_everything(subject: Subject) -> Iterator[Problem]:
    with _begin(subject) as (tracker, *_):
        for step, metrics, phase in [*sample_log(), (4, {}, "train"), (10**9, {}, "eval")]:
            if error := catch(tracker.log, step, dict(metrics), phase):
                call = f"log({step}, {{{', '.join(map(repr, metrics))}}}, {phase!r})"
                yield Problem(f"{call} raised {describe_error(error)}", error)
        tracker.close()


@criterion("T3")
def _writes_inside(subject: Subject) -> Iterator[Problem]:
    with _begin(subject) as (tracker, _, files):
        for logged in sample_log():
            tracker.log(*logged)
        tracker.close()
    for path in files:
        what = f"it writes {path} in the current folder, outside the run folder"
        yield Problem(what, type(tracker))


@criterion("T5")
def _resumes(subject: Subject) -> Iterator[Problem]:
    with _begin(subject) as (first, run_dir, _):
        for logged in sample_log(1, 3):
            first.log(*logged)
        first.close()
        before = _sizes(run_dir)
        second: Tracker = subject.make(run_dir)
        after = _sizes(run_dir)
        for path, size in before.items():
            if (left := after.get(path, 0)) < size:
                what = f"made again, it emptied {path}: {size} bytes were there, {left} are left"
                yield Problem(what, type(second))
        for logged in sample_log(3, 5):
            second.log(*logged)
        second.close()


def _sizes(folder: Path) -> dict[str, int]:
    # A link that leads to another file now ("latest") has emptied nothing.
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
