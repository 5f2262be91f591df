"""A call in another process, as a worker makes it: from a registry's spec, never from its objects.

Owns the start of a fresh interpreter with another hash seed, so that what depends on the order of
a set shows. What is called is a function of a module, with the registry rebuilt there.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from searchrl.errors import PluginError
from searchrl.plugins.registry import Registry

TIMEOUT_S = 45.0
"""Seconds the other process may take, its imports included."""

_CODE = (
    "import pickle, sys; from pathlib import Path; "
    "sys.path[:] = pickle.loads(Path(sys.argv[1]).read_bytes()); "
    "from searchrl.testing.probes.elsewhere import serve; serve(sys.argv[2], sys.argv[3])"
)


class DiedElsewhere(PluginError):
    """The other process ended without an answer; `status` is its exit status, < 0 a signal."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class LateElsewhere(PluginError):
    """The other process took too long, and was ended."""

    fix = (
        "let it do there what it does here, in bounded time. If the machine has other work, check "
        "again when that is done: the seconds of the CPU say how far it came"
    )


def call_elsewhere(
    registry: Registry,
    function: Callable[..., Any],
    *args: Any,
    timeout_s: float | None = TIMEOUT_S,
    shows_output: bool = False,
) -> Any:
    """Return `function(registry, *args)` as another process computes it.

    Args:
        registry: rebuilt there with `reload_plugins(registry.spec())`.
        function: of a module, so that its name says where to find it.
        args: what pickle can carry; so must be what comes back.
        timeout_s: how long it may take.
        shows_output: whether what it printed is shown, as errors are.

    Raises:
        DiedElsewhere: with the last line that the other process wrote, if it fails.
        LateElsewhere: it took longer than `timeout_s`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, asked, told = (Path(folder) / name for name in ("path", "asked", "told"))
        path.write_bytes(pickle.dumps(sys.path))
        asked.write_bytes(pickle.dumps((registry.spec(), function, args)))
        # Another order of sets, whatever seed this process has.
        seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        before = os.times()
        try:
            done = subprocess.run(
                [sys.executable, "-c", _CODE, str(path), str(asked), str(told)],
                env={**os.environ, "PYTHONHASHSEED": seed},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            after = os.times()
            cpu_s = sum(after[2:4]) - sum(before[2:4])  # of processes that have ended
            raise LateElsewhere(
                f"another process did not do the same within {timeout_s:g} s, imports included; it "
                f"had {cpu_s:.1f} s of the CPU"
            ) from None
        if shows_output:
            sys.stderr.write(done.stdout + done.stderr)
        if done.returncode or not told.is_file():
            last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            text = f"another process could not do the same: {last[0]}"
            raise DiedElsewhere(text, done.returncode)
        return pickle.loads(told.read_bytes())


def serve(asked: str, told: str) -> None:
    """Answer `call_elsewhere`: read what is asked from one file, write the result to another."""
    from searchrl.plugins import reload_plugins

    spec, function, args = pickle.loads(Path(asked).read_bytes())
    result = function(reload_plugins(spec), *args)
    Path(told).write_bytes(pickle.dumps(result))
