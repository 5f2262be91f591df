"""Places in a plugin's file: which line returned a wrong value, which line touched the outside.

Owns `locate`, which makes a call once more to see at which `return` of the plugin's file it ends,
and `place_of`, which turns a stack into something that a `Problem` can point at. The criteria of
rewards, retrievers, trackers and algorithms call both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any


class Place(Exception):
    """No error: an exception whose traceback ends at a place, for `Problem.at`. Never raised."""


def locate(file: str, call: Callable[[], object]) -> Place | None:
    """Make `call` again; return the place of the last `return` executed in `file`.

    None if no function of `file` returns in it. What the call raises is swallowed: it is made for
    the place alone.
    """
    found: list[tuple[FrameType, int]] = []

    def trace(frame: FrameType, event: str, value: Any) -> Any:
        if frame.f_code.co_filename != file:
            return trace
        if event == "return":
            found[:] = [(frame, frame.f_lineno)]
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except (Exception, SystemExit):
        return None
    finally:
        sys.settrace(before)
    return place_of(found) if found else None


def place_of(frames: Iterable[tuple[FrameType, int]]) -> Place:
    """A `Place` with the given (frame, line) pairs as its traceback, outermost first."""
    trace: TracebackType | None = None
    for frame, line in reversed(list(frames)):
        trace = TracebackType(trace, frame, max(frame.f_lasti, 0), line)
    return Place().with_traceback(trace)


def frames_here(depth: int = 1) -> list[tuple[FrameType, int]]:
    """The stack of the caller `depth` calls up, outermost first, for `place_of`."""
    frame: FrameType | None = sys._getframe(depth)
    found: list[tuple[FrameType, int]] = []
    while frame is not None:
        found.append((frame, frame.f_lineno))
        frame = frame.f_back
    return found[::-1]
