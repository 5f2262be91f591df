"""Other surroundings: what a pure function must not notice.

Owns the change of seeds, clock, language and current folder for the time of a check, and that all
of it is restored. Process-wide, so nothing else should run meanwhile. The criteria of rewards,
retrievers and algorithms use it.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock


@contextmanager
def other_surroundings(*, seed: int, clock: float, language: str) -> Iterator[Path]:
    """Another seed, time, language and current folder, which is empty; all restored afterwards."""
    import numpy as np

    state, numpy_state, before = random.getstate(), np.random.get_state(), Path.cwd()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        mock.patch("time.time", lambda: clock),
        mock.patch("time.time_ns", lambda: int(clock * 1e9)),
        mock.patch.dict(os.environ, {"LANG": language, "LC_ALL": language, "USER": f"u{seed}"}),
    ):
        os.chdir(folder)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)
            random.setstate(state)
            np.random.set_state(numpy_state)
