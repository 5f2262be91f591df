"""Policies and presets in packages, by names such as `searchrl:assets/tiny`: `PACKAGE:PATH`.

The package is found and not imported, so that a name in somebody's run folder runs no code.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

EMBEDDED = "searchrl:assets/tiny"
"""The policy that `tiny` means for every environment that brings none of its own."""

_NAME = re.compile(r"[A-Za-z_]\w*:[\w-][\w.-]*(/[\w-][\w.-]*)*")


def is_packaged(name: str) -> bool:
    """Return True if a name is of the form `PACKAGE:PATH`; the path lies in the package."""
    return _NAME.fullmatch(name) is not None


def find_packaged(name: str) -> Path | None:
    """The file or folder of a name; None if the package, or that in it, is not here."""
    if not is_packaged(name):
        return None
    package, _, inner = name.partition(":")
    try:
        spec = importlib.util.find_spec(package)  # without a dot in it, nothing is imported
    except (ImportError, ValueError):
        return None
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    candidates = (Path(place) / inner for place in places)
    return next((one.resolve() for one in candidates if one.exists()), None)
