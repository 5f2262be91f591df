"""Criteria of trackers: T1 to T6, over the metrics of a short run.

Owns what a tracker must do: it takes whatever a run logs, writes inside the run folder alone, needs
no network, and goes on where an earlier process ended.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from searchrl.contracts import Metric, Tracker
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import Problem, criteria_in, criterion
from searchrl.testing.kinds.trials import Trial, raises_nothing, unmutated
from searchrl.testing.kit.fuzz import catch
from searchrl.testing.kit.subject import Subject
from searchrl.testing.kit.surroundings import Effect, away

Logged = tuple[int, dict[str, Metric], str]
"""What `log` is called with: step, metrics, phase."""


def sample_log(first: int = 1, last: int = 3) -> list[Logged]:
    """What a run of some steps logs: metrics that come and go, some without an interval."""

    def metric(value: float, n: int = 8) -> Metric:
        return Metric(value=value, low=value - 0.1, high=value + 0.1, n=n)

    logged: list[Logged] = []
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
        logged.append((step, train, "train"))
        if step % 2 == 0:
            logged.append((step, {"reward": metric(0.2), "em/forced": metric(0.0)}, "eval"))
    return logged


@criterion("T1")
def _logs_a_run(subject: Subject) -> Iterator[Problem]:
    with _folder() as run_dir:
        tracker: Any = subject.make(run_dir)
        at = type(tracker)
        for method in ("log", "close"):
            if not callable(getattr(tracker, method, None)):
                yield Problem(f"the factory makes a {at.__name__} without a method {method}", at)
                return
        tracker.log(*sample_log(1, 1)[0])
        tracker.close()


@criterion("T2")
def _takes_everything(subject: Subject) -> Iterator[Problem]:
    with _logging() as trial:
        yield from raises_nothing(trial)(subject)


@criterion("T3")
def _writes_inside(subject: Subject) -> Iterator[Problem]:
    with _folder() as run_dir:
        for what, _ in _effects(subject, run_dir, "writes"):
            yield Problem(f"it {what}, outside the run folder", type(subject.make(run_dir)))


@criterion("T4")
def _is_offline(subject: Subject) -> Iterator[Problem]:
    with _folder() as run_dir:
        for what, place in _effects(subject, run_dir, "opens"):
            yield Problem(f"it {what}", place)


@criterion("T5")
def _resumes(subject: Subject) -> Iterator[Problem]:
    with _folder() as run_dir:
        _run(subject, run_dir, 1, 3)
        before = _sizes(run_dir)
        try:
            second: Tracker = subject.make(run_dir)
        except (Exception, SystemExit) as error:
            what = f"made again in the same folder, it raised {describe_error(error)}"
            yield Problem(what, error)
            return
        after = _sizes(run_dir)
        for path, size in before.items():
            if (left := after.get(path, 0)) < size:
                what = f"made again, it emptied {path}: {size} bytes were there, {left} are left"
                yield Problem(what, type(second))
        for logged in sample_log(3, 5):
            second.log(*logged)
        second.close()


@criterion("T6")
def _does_not_mutate(subject: Subject) -> Iterator[Problem]:
    with _logging() as trial:
        yield from unmutated(trial)(subject)


TRACKER_CRITERIA = criteria_in(vars())
"""T1 to T6."""


def _calls_of_log(subject: Subject) -> dict[str, dict[str, Any]]:
    calls: list[Logged] = [*sample_log(), (4, {}, "train"), (10**9, {}, "eval")]
    return {
        f"log({step}, {{{', '.join(map(repr, metrics))}}}, {phase!r})": (
            {"step": step, "metrics": metrics, "phase": phase}
        )
        for step, metrics, phase in calls
    }


@contextlib.contextmanager
def _logging() -> Iterator[Trial]:
    """A trial of one tracker that logs a run in a folder of its own; it is closed in the end."""
    with _folder() as run_dir, contextlib.ExitStack() as stack:

        def make(subject: Subject) -> Tracker:
            tracker: Tracker = subject.make(run_dir)
            stack.callback(tracker.close)
            return tracker

        def log(tracker: Tracker, call: dict[str, Any]) -> None:
            tracker.log(*call.values())

        yield Trial(_calls_of_log, log, make, lambda subject, call: type(make(subject)).log)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """The folder of a run, for the time of a check without network."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run_dir, elsewhere = Path(folder).resolve() / "run", Path(folder) / "elsewhere"
        run_dir.mkdir()
        elsewhere.mkdir()
        # No connection, because made-up metrics must reach no server; another current folder,
        # because a check must leave no files in the author's.
        with away(elsewhere):
            yield run_dir


def _effects(subject: Subject, run_dir: Path, verb: str) -> list[Effect]:
    """What a short run with the tracker does to the outside, of one kind."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        away(Path(folder)) as effects,
    ):
        error = catch(_run, subject, run_dir)
    found = [effect for effect in effects if effect.what.startswith(verb)]
    if error is not None and not found:
        raise error
    return found


def _run(subject: Subject, run_dir: Path, first: int = 1, last: int = 3) -> None:
    tracker = subject.make(run_dir)
    for logged in sample_log(first, last):
        tracker.log(*logged)
    tracker.close()


def _sizes(folder: Path) -> dict[str, int]:
    # A link that leads to another file now ("latest") has emptied nothing.
    every = (path for path in folder.rglob("*") if not path.is_symlink())
    files = sorted(path for path in every if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
