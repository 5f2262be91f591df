"""Kills training runs with SIGKILL at chosen places, and resumes them: a program, run by tests.

The hook is Python's profiler: inside of a place (a few functions) every call is counted, of Python
and of C alike, so that kills fall between any two system calls of a write. Nothing of this is in
the product, and nothing is slower without it. Every run is a fork of this process, which has
imported everything and computed nothing: torch is loaded once for fifty runs.

    python killing.py JOB.json

JOB.json: `settings` of the run, `whole` and `folder` (where runs go), `points` [[place, part]]:
the kill comes after this part (0 to 1) of all calls that the uninterrupted run makes in the place.
Prints one JSON line per point: what ended the killed process, and how the resumed one ended.
"""

import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import searchrl.programs.train as train_program
from searchrl.engine.learning import step_groups
from searchrl.programs import training_run
from searchrl.programs.setup.session import Session
from searchrl.run_folder import RunWriter

PLACES: dict[str, tuple[tuple[Any, str], ...]] = {
    "rollout": ((Session, "sample"),),
    "branches": ((step_groups, "grow"),),
    "update": ((Session, "update"),),
    "checkpoint": (
        (training_run, "save_checkpoint"),
        (training_run, "rotate_checkpoints"),
        (training_run, "save_policy"),
    ),
    "evaluation": ((training_run, "evaluate_both"),),
    "metrics": ((RunWriter, "write_rollouts"), (RunWriter, "log")),
}


class CallCounter:
    """Counts calls in each place; in the place `where`, the call number `at` is the last."""

    def __init__(self, where: str = "", at: int = 0) -> None:
        self.where, self.at = where, at
        self.counts: Counter[str] = Counter()
        self.has_checkpoint = False
        """Before the first one there is nothing to resume."""

    def watch(self) -> None:
        for place, functions in PLACES.items():
            for owner, name in functions:
                setattr(owner, name, self._watched(place, getattr(owner, name)))

    def _watched(self, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(frame: Any, event: str, argument: Any) -> None:
            if event not in ("call", "c_call"):
                return
            self.counts[place] += 1
            if place == self.where and self.counts[place] == self.at:
                os.kill(os.getpid(), signal.SIGKILL)

        @wraps(function)
        def watched(*args: Any, **more: Any) -> Any:
            if self.has_checkpoint:
                sys.setprofile(count)
            try:
                return function(*args, **more)
            finally:
                sys.setprofile(None)
                self.has_checkpoint |= place == "checkpoint"

        return watched


def forked(work: Callable[[], None]) -> int:
    """Do something in a fork; returns its exit status, as `os.waitstatus_to_exitcode` has it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(job: dict[str, Any]) -> None:
    folder = Path(job["folder"])

    def settings(run_dir: Path) -> dict[str, Any]:
        return {**job["settings"], "run_dir": str(run_dir)}

    def run_whole() -> None:
        counter = CallCounter()
        counter.watch()
        train_program.train(settings(Path(job["whole"])))
        (folder / "counts.json").write_text(json.dumps(counter.counts))

    if forked(run_whole):
        sys.exit("the uninterrupted run failed")
    counts = json.loads((folder / "counts.json").read_text())
    for number, (place, part) in enumerate(job["points"]):
        run_dir = folder / f"{number:02d}-{place}"
        at = int(counts[place] * part)

        def run_and_die(run_dir: Path = run_dir, place: str = place, at: int = at) -> None:
            CallCounter(place, at).watch()
            train_program.train(settings(run_dir))

        def resume(run_dir: Path = run_dir) -> None:
            train_program.train(resume=run_dir)

        killed = forked(run_and_die)
        resumed = forked(resume)
        point = {"run": str(run_dir), "at": f"{place}, call {at} of {counts[place]}"}
        print(json.dumps(point | {"killed": killed, "resumed": resumed}), flush=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
