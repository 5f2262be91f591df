"""Names of new plugins: which can be registered and imported, and which are taken.

Owns the rules for a name and the errors that explain them. Callers: `layout`, `writer`, `cli new`.
"""

from __future__ import annotations

import keyword
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from searchrl.errors import ConfigError
from searchrl.plugins import Registry

MAX_NAME_LENGTH = 60

TIDY_NAME_LENGTH = 22
"""Up to this length every line of the templates fits; a longer name works all the same."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([_-][A-Za-z0-9]+)*")


def module_name(name: str) -> str:
    """The Python identifier of a plugin's name: `-` becomes `_`."""
    return name.replace("-", "_")


def ensure_name(kind: str, name: str) -> None:
    """Raise `ConfigError` unless `name` can be registered as a `kind` and imported."""
    module = module_name(name)
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise ConfigError(
            f"{name!r} is no name for a plugin: expected a letter, then letters and digits, with "
            f"single - or _ between them, at most {MAX_NAME_LENGTH} in all, such as 'my-env'"
        )
    if kind == "reward" and not name.isidentifier():
        raise ConfigError(
            f"{kind} '{name}': the name is used in expressions such as 'format+em', where - is "
            f"minus; use '{module}'"
        )
    if keyword.iskeyword(module):
        raise ConfigError(f"'{name}' is a word of Python's own; choose another name")


def ensure_free(kind: str, name: str, registry: Registry) -> None:
    """Raise `ConfigError` if another plugin of `registry` offers `name` as a `kind` already.

    The package `searchrl-NAME` is not another one: it may be written anew.
    """
    for entry in registry.entries():
        is_same = (entry.kind, entry.name) == (kind, name)
        if is_same and entry.owner.distribution != f"searchrl-{name}":
            raise ConfigError(
                f"there is a {entry.kind} '{name}' already, of {entry.owner.name}; two plugins "
                "that offer one name are refused, so choose another"
            )


def ensure_hides_nothing(path: Path, folder: Path) -> None:
    """Refuse a file that would be imported instead of a module of the same name."""
    if path.parent != Path("."):
        return
    module, here = path.stem, folder.resolve()
    places = [place for place in sys.path if place and Path(place).resolve() != here]
    found = PathFinder.find_spec(module, places)
    # Without a loader it is a folder without code.
    if module in sys.stdlib_module_names or (found is not None and found.loader is not None):
        raise ConfigError(
            f"{path} would be imported in place of the module '{module}' by every Python that is "
            "started beside it; choose another name, or add --package"
        )
