"""The end of a step loop, whatever ends it: finished steps are kept, the user learns how to go on.

Owns the signal handlers of long programs and their one way out: Ctrl-C, SIGTERM and SIGHUP (the
first sets a flag that loops look at, a second Ctrl-C raises at once), an error of ours or of a
plugin, failed episodes. It does not know what a checkpoint holds.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl.engine.rollout.rollout import Interrupted
from searchrl.errors import AlarmStop, BudgetSpent, Stopped
from searchrl.run_folder import list_checkpoints


@dataclass(slots=True)
class StopFlag:
    """Set when the user or the system asks to stop; calling it reads it. `number`: the signal."""

    is_requested: bool = False
    number: int = signal.SIGINT

    def __call__(self) -> bool:
        """Read it."""
        return self.is_requested


_CAUGHT = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@contextmanager
def catching_signals() -> Iterator[StopFlag]:
    """Yield a flag that Ctrl-C, SIGTERM and SIGHUP set. Outside the main thread it is never set.

    A second Ctrl-C raises at once. SIGTERM may come twice, from torchrun or a batch system and from
    its job step. A signal that is ignored, as `nohup` has it, stays ignored. `Stopped` is raised in
    place of the `KeyboardInterrupt` that leaves the block after SIGTERM or SIGHUP, and of the error
    of a terminal that SIGHUP has closed.
    """
    stop = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: Any) -> None:
        if stop.is_requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not stop.is_requested:
            stop.is_requested, stop.number = True, number

    heard = [number for number in _CAUGHT if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in heard}
    try:
        yield stop
    except (KeyboardInterrupt, OSError) as error:
        if stop.number == signal.SIGINT or (
            isinstance(error, OSError) and stop.number == signal.SIGTERM
        ):
            raise
        raise Stopped(stop.number, *map(str, error.args)) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def keeping_finished(
    command: str,
    run_dir: Path,
    save: Callable[[], int],
    last_words: Callable[[str], None],
) -> Iterator[None]:
    """Write a checkpoint of the last finished step when the block ends early, and say how to go on.

    `command` resumes the run. `save` writes it and returns its step; it must not call the
    observer, which may be what failed. `Interrupted`, which loops raise when they were asked to
    stop, becomes a `KeyboardInterrupt`.
    """
    way_on = f"continue with: {command}"
    try:
        yield
    except Interrupted:
        text = f"stopped after step {save()}; {way_on}"
        with suppress(OSError):  # the terminal is gone after SIGHUP
            last_words(text)
        # With a text: whoever catches it need not say that the run was interrupted.
        raise KeyboardInterrupt(text) from None
    except KeyboardInterrupt as error:
        # The second Ctrl-C: it may have come in the middle of an update.
        text = f"stopped at once; {_last_checkpoint(run_dir, way_on)}"
        last_words(text)
        error.args = (text,)
        raise
    except (AlarmStop, BudgetSpent) as error:
        error.args = (f"{error}; {_keep(save, run_dir, way_on)}",)
        with suppress(OSError):  # as above
            last_words(str(error))
        raise
    except (Exception, SystemExit) as error:  # a plugin's sys.exit() is an error like any other
        text = _keep(save, run_dir, way_on)
        error.add_note(text)
        with suppress(Exception):  # the observer may be what failed
            last_words(text)
        raise


def _keep(save: Callable[[], int], run_dir: Path, way_on: str) -> str:
    """Write a checkpoint, if that can be done, and say what is kept."""
    try:
        return f"everything up to step {save()} is kept; {way_on}"
    except Exception as failure:
        return f"nothing more could be kept ({failure}); {_last_checkpoint(run_dir, way_on)}"


def _last_checkpoint(run_dir: Path, way_on: str) -> str:
    checkpoints = list_checkpoints(run_dir)
    if not checkpoints:
        return f"'{run_dir}' holds no checkpoint to continue from"
    step = int(checkpoints[-1].name.rpartition("_")[2])
    return f"what came after step {step}, the last checkpoint, is lost; {way_on}"
