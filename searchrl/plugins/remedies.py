"""Remedies: what to change where the code of a plugin raised an error, by the kind of error.

Owns what SearchRL knows and Python does not say: how methods are called, what its records have and
where its names are. "" where the error says it all.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import is_dataclass
from pathlib import Path

from searchrl.errors import suggest

_CALLS = {
    "protocol": "def __init__(self, *, protocol, retriever, **settings)",
    "retriever": "def __init__(self, *, protocol, retriever, **settings)",
    "seed": "def reset(self, *, seed=None, options=None)",
    "options": "def reset(self, *, seed=None, options=None)",
}
"""How SearchRL and Gymnasium call a method, by an argument that they pass."""


_PUBLIC = (
    "searchrl.protocols",
    "searchrl.rewards",
    "searchrl.testing",
    "searchrl.envs.text",
    "searchrl.errors",
    "searchrl.contracts",
    "searchrl.core.episode",
    "searchrl",
)
"""What a plugin may rely on; a name is to be imported from the last of them that has it."""


def find_remedy(error: BaseException) -> str:
    """What to change, or ""."""
    if isinstance(error, ImportError):
        return _of_import(error)
    if isinstance(error, FileNotFoundError):
        name = Path(str(error.filename or "data.json")).name
        return (
            "a run may start in any folder: name the file as "
            f"Path(__file__).parent / {name!r}, or take its path as a setting"
        )
    if isinstance(error, ConnectionError):
        return "use no network here: answer from what the factory was given"
    if isinstance(error, TypeError):
        found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        call = _CALLS.get(found[1]) if found else None
        return f"accept it: {call}" if call else ""
    return _of_attribute(error) if isinstance(error, AttributeError) else ""


def _of_attribute(error: AttributeError) -> str:
    if error.obj is None:
        return (
            "the value is None here: say what happens then (final_answer is None where there is no "
            "answer)"
        )
    kind, name = type(error.obj), error.name or ""
    if not is_dataclass(kind) or kind.__module__.partition(".")[0] != "searchrl":
        return ""
    names = [one for one in dir(kind) if not one.startswith("_")]
    return f"{kind.__name__} has no {name!r}.{suggest(name, names, '')} It has: {', '.join(names)}"


def _of_import(error: ImportError) -> str:
    missing = (error.name or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError):
        return (
            f"install it (pip install {missing}) and list it among the plugin's dependencies; a "
            "module beside a --plugin file is not on Python's path"
        )
    found = re.search(r"cannot import name '(\w+)'", str(error))
    if missing == "searchrl" and found:
        return _where_it_is(found[1])
    return f"look up what {missing or 'the module'} offers in the version that is installed"


def _where_it_is(name: str) -> str:
    """Which of the modules that plugins may rely on has a name."""
    offered = {
        public: module
        for module in _PUBLIC
        for public in dir(importlib.import_module(module))
        if not public.startswith("_")
    }
    if name in offered:
        return f"write: from {offered[name]} import {name}"
    near = suggest(name, list(offered), "")
    return f"no public module of searchrl has {name!r}.{near} docs/write-a-plugin.md lists them"
