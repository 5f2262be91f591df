"""Embedded policies: small models that packages bring, under names such as `searchrl:assets/tiny`.

Owns how such a name, `PACKAGE:FOLDER`, becomes a folder. The package is found and not imported, so
that a name in somebody's run folder runs no code. Which policy `tiny` means is said by the
registration of an environment (`Entry.policy_for`). Callers: what loads models, registrations, the
page of a run. Loads nothing itself.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

EMBEDDED = "searchrl:assets/tiny"
"""The policy that `tiny` means for every environment that brings none of its own."""

_NAME = re.compile(r"[A-Za-z_]\w*:(?!\.)[\w-][\w.-]*(/[\w-][\w.-]*)*")


def is_embedded(name: str) -> bool:
    """Whether a name is of the form `PACKAGE:FOLDER`; the folder lies in the package."""
    return _NAME.fullmatch(name) is not None


def package_of(name: str) -> str:
    """The package that brings a policy."""
    return name.partition(":")[0]


def find_embedded(name: str) -> Path | None:
    """The folder of an embedded policy; None if the package or the folder is not here."""
    if not is_embedded(name):
        return None
    package, _, folder = name.partition(":")
    try:
        spec = importlib.util.find_spec(package)  # without a dot in it, nothing is imported
    except (ImportError, ValueError):
        return None
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    found = (Path(place) / folder for place in places)
    return next((one.resolve() for one in found if one.is_dir()), None)
