"""Ways to damage a file of a run."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flip(path: Path, mask: int = 1, num_bytes: int = 8) -> None:
    """Flip bits in the middle of a file; with mask 1, text stays text and digits stay digits."""
    data = bytearray(path.read_bytes())
    middle = max(0, len(data) // 2 - num_bytes // 2)
    for place in range(middle, min(len(data), middle + num_bytes)):
        data[place] ^= mask
    path.write_bytes(bytes(data))


def _invert(path: Path) -> None:
    flip(path, 0xFF)


def _put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _lock(path: Path) -> None:
    path.chmod(0)


DAMAGES: Mapping[str, Callable[[Path], None]] = {
    "empty": _empty,
    "truncated": _truncate,
    "flipped": flip,
    "inverted": _invert,
    "missing": Path.unlink,
    "folder": _put_folder,
    "unreadable": _lock,
}


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inherited"))


_OVERRIDES = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: with them root reads what nobody may read."""


@contextmanager
def without_overrides() -> Iterator[None]:
    """For root on Linux: files that nobody may read cannot be read in here, as for any user."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, now = _Header(0x20080522, 0), (_Capabilities * 2)()
    assert libc.capget(ctypes.byref(header), now) == 0
    before = now[0].effective
    now[0].effective = before & ~_OVERRIDES
    assert libc.capset(ctypes.byref(header), now) == 0
    try:
        yield
    finally:
        now[0].effective = before
        assert libc.capset(ctypes.byref(header), now) == 0
