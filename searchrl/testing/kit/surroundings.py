"""Other surroundings: what a pure function must not notice, and must leave as they are.

Owns the change of seeds, clock, language and current folder for the time of a check, that all of it
is restored, and what is seen of effects on the outside: files that were left in the current folder,
and connections, which are refused. Process-wide, so nothing else should run meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from unittest import mock

from searchrl.testing.kit.places import Place, frames_here, place_of


class Effect(NamedTuple):
    """Something done to the outside, in words, and where if that is known."""

    what: str
    place: Place | None = None


@contextmanager
def away(folder: Path) -> Iterator[list[Effect]]:
    """Stand in an empty folder, without network; what is done to the outside is in the list."""
    effects: list[Effect] = []

    def refuse(*args: Any, **named: Any) -> NoReturn:
        address = next((one for one in args if isinstance(one, tuple)), args)
        asked = ":".join(map(str, address[:2]))
        effects.append(Effect(f"opens a connection to {asked}", place_of(frames_here(2))))
        raise ConnectionRefusedError(f"no connection to {asked}: a check is without network")

    with contextlib.ExitStack() as stack:
        for name in ("connect", "connect_ex", "sendto"):
            real = getattr(socket.socket, name)

            def reach(to: socket.socket, *args: Any, real: Any = real) -> Any:
                # A service of its own on this machine is no network.
                is_local = to.family == getattr(socket, "AF_UNIX", None)
                return real(to, *args) if is_local else refuse(*args)

            stack.enter_context(mock.patch.object(socket.socket, name, reach))
        stack.enter_context(mock.patch("socket.getaddrinfo", refuse))
        stack.enter_context(contextlib.chdir(folder))
        yield effects
    left = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    effects += [Effect(f"writes {path} in the current folder") for path in left]


@contextmanager
def other_surroundings(*, seed: int, clock: float, language: str) -> Iterator[list[Effect]]:
    """Another seed, time, language and current folder, which is empty; all restored afterwards."""
    import numpy as np

    state, numpy_state = random.getstate(), np.random.get_state()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        mock.patch("time.time", lambda: clock),
        mock.patch("time.time_ns", lambda: int(clock * 1e9)),
        mock.patch.dict(os.environ, {"LANG": language, "LC_ALL": language, "USER": f"u{seed}"}),
        away(Path(folder)) as effects,
    ):
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield effects
        finally:
            random.setstate(state)
            np.random.set_state(numpy_state)
