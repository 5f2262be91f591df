"""Criteria of trackers: T1 to T6, over the metrics of a short run.

Owns what a tracker is held to: it takes whatever a run logs, writes inside the run folder alone,
needs no network, and goes on where an earlier process ended. `searchrl check` runs them.
"""

from __future__ import annotations

import contextlib
import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from searchrl.contracts import Metric, Tracker
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import Criterion, NotApplicable, Problem, criterion
from searchrl.testing.probes.effects import Effect, watch_effects
from searchrl.testing.probes.subject import PluginSubject


class TrackerSubject(PluginSubject):
    """A registered tracker."""

    __slots__ = ()

    def make(self, run_dir: Path) -> Tracker:
        """A fresh tracker of the run in `run_dir`."""
        made: Tracker = self.build(run_dir)
        return made


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
            "num_tokens": Metric(value=float(10**12), n=0),
            "learning_rate": Metric(value=1e-300, n=1),
        }
        if step % 2:
            train["only at times"] = metric(-3.0, n=1)
        logged.append((step, train, "train"))
        if step % 2 == 0:
            logged.append((step, {"reward": metric(0.2), "em/forced": metric(0.0)}, "eval"))
    return logged


@criterion(
    "T1",
    "is made with a run folder and logs a run",
    "A tracker that cannot be made ends the run before it begins.",
)
def _logs_a_run(subject: TrackerSubject) -> Iterator[Problem]:
    with _folder() as run_dir:
        tracker: Any = subject.make(run_dir)
        for method in ("log", "close"):
            if not callable(getattr(tracker, method, None)):
                yield Problem(
                    f"the factory makes a {type(tracker).__name__} without a method {method}",
                    "give it log(self, step, metrics, phase) and close(self)",
                    type(tracker),
                )
                return
        tracker.log(*sample_log(1, 1)[0])
        tracker.close()


@criterion(
    "T2",
    "takes every metric, name and phase",
    "A tracker that raises ends the run, hours of training included.",
)
def _takes_everything(subject: TrackerSubject) -> Iterator[Problem]:
    _ensure_made(subject)
    with _folder() as run_dir:
        tracker = subject.make(run_dir)
        for step, metrics, phase in [*sample_log(), (4, {}, "train"), (10**9, {}, "eval")]:
            try:
                tracker.log(step, metrics, phase)
            except (Exception, SystemExit) as error:
                yield Problem(
                    f"log({step}, {{{', '.join(map(repr, metrics))}}}, {phase!r}) raised "
                    f"{describe_error(error)}",
                    "take any text as a name, names that come and go, a metric without an interval "
                    "(no `low`, no `high`), and no metric at all",
                    error,
                )
        tracker.close()


@criterion(
    "T3",
    "writes inside the run folder only",
    "What lies elsewhere is not moved, resumed or deleted with the run, and runs overwrite it.",
)
def _writes_inside(subject: TrackerSubject) -> Iterator[Problem]:
    with _folder() as run_dir:
        for effect in _effects(subject, run_dir, "write"):
            if not Path(effect.target).is_relative_to(run_dir):
                yield Problem(
                    f"it writes {_shorten(effect.target)}, outside the run folder",
                    "put it under run_dir, which the factory is given",
                    effect.place,
                )


@criterion(
    "T4",
    "opens no connection",
    "Training machines often have no network; metrics are not worth a run.",
)
def _is_offline(subject: TrackerSubject) -> Iterator[Problem]:
    with _folder() as run_dir:
        for effect in _effects(subject, run_dir, "connect"):
            yield Problem(
                f"it {effect}",
                "write files under run_dir, and send them with a program beside the run",
                effect.place,
            )


@criterion(
    "T5",
    "goes on in the folder of an earlier process",
    "A resumed run makes its trackers anew in the same folder.",
)
def _resumes(subject: TrackerSubject) -> Iterator[Problem]:
    _ensure_made(subject)
    with _folder() as run_dir:
        first = subject.make(run_dir)
        for logged in sample_log(1, 3):
            first.log(*logged)
        first.close()
        before = _sizes(run_dir)
        try:
            second = subject.make(run_dir)
        except (Exception, SystemExit) as error:
            yield Problem(
                f"made again in the same folder, it raised {describe_error(error)}",
                "create folders with exist_ok=True, and append to files that are there",
                error,
            )
            return
        after = _sizes(run_dir)
        for path, size in before.items():
            if after.get(path, 0) < size:
                yield Problem(
                    f"made again, it emptied {path}: {size} bytes were there, {after.get(path, 0)} "
                    "are left",
                    "open the file to append, mode 'a'",
                    type(second),
                )
        for logged in sample_log(3, 5):
            second.log(*logged)
        second.close()


@criterion(
    "T6",
    "leaves the metrics as they are",
    "The same metrics go to the other trackers, the console and the run folder.",
)
def _does_not_mutate(subject: TrackerSubject) -> Iterator[Problem]:
    _ensure_made(subject)
    with _folder() as run_dir:
        tracker = subject.make(run_dir)
        for step, metrics, phase in sample_log():
            before = copy.deepcopy(metrics)
            tracker.log(step, metrics, phase)
            if metrics != before:
                yield Problem(
                    f"the metrics of step {step} are others after log()",
                    "copy what is changed: dict(metrics)",
                    type(tracker).log,
                )
                break
        tracker.close()


TRACKER_CRITERIA: tuple[Criterion[TrackerSubject], ...] = (
    _logs_a_run, _takes_everything, _writes_inside, _is_offline, _resumes, _does_not_mutate,
)  # fmt: skip
"""T1 to T6."""


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """The folder of a run, for the time of a check without network."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run_dir, elsewhere = Path(folder).resolve() / "run", Path(folder) / "elsewhere"
        run_dir.mkdir()
        elsewhere.mkdir()
        # Refuses connections: a check sends nobody its made-up metrics. Nor does it leave files
        # in the author's current folder.
        with contextlib.chdir(elsewhere), watch_effects():
            yield run_dir


def _ensure_made(subject: TrackerSubject) -> None:
    """Raise `NotApplicable` for a tracker that cannot be made and closed at all; T1 says why."""
    with _folder() as run_dir:
        try:
            subject.make(run_dir).close()
        except (Exception, SystemExit) as error:
            raise NotApplicable("it cannot be made and closed; see T1") from error


def _effects(subject: TrackerSubject, run_dir: Path, kind: str) -> list[Effect]:
    """What a short run with the tracker does of one kind.

    Looked for in the second of two runs: in the first its libraries may fill caches of their own.
    """
    found: list[Effect] = []
    error: BaseException | None = None
    for folder in (run_dir.with_name("first"), run_dir):
        folder.mkdir(exist_ok=True)
        with watch_effects() as effects:
            try:
                _run(subject, folder)
            except (Exception, SystemExit) as raised:
                error = raised
        found = [effect for effect in effects if effect.kind == kind]
    if error is not None and not found:
        raise NotApplicable("it does not get through a run; see T1 and T2") from error
    return found


def _run(subject: TrackerSubject, run_dir: Path) -> None:
    tracker = subject.make(run_dir)
    for logged in sample_log():
        tracker.log(*logged)
    tracker.close()


def _shorten(path: str) -> str:
    """A path of the current folder as a relative one."""
    here = Path.cwd()
    inside = Path(path).is_relative_to(here)
    return f"{Path(path).relative_to(here)} in the current folder" if inside else path


def _sizes(folder: Path) -> dict[str, int]:
    # A link that leads to another file now ("latest") has emptied nothing.
    every = (path for path in folder.rglob("*") if not path.is_symlink())
    files = sorted(path for path in every if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
