"""The `register` callback that hooks receive: it checks and collects, and changes nothing else.

Owns what a legal registration is, and the fault that says which line was wrong.
"""

from __future__ import annotations

import copy
import functools
import inspect
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from searchrl.envs.gym_ids import SCHEME, find_ids
from searchrl.errors import suggest
from searchrl.hookspecs import OPTIONS, Factory, Register
from searchrl.plugins.provenance import Origin, Owner
from searchrl.plugins.registry import Entry
from searchrl.plugins.signatures import find_signature_problem

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


@functools.cache
def _types_of(kind: str) -> Mapping[str, TypeAdapter[Any]]:
    """Types of what `register` of a kind takes besides a name, as in `hookspecs`."""
    hints = get_type_hints(Register.__call__, include_extras=True)
    keys = ("factory", *OPTIONS.get(kind, ()), "description")
    return {key: TypeAdapter(hints[key]) for key in keys}


class PluginFault(Exception):
    """A mistake of a plugin that raised no exception of its own; `line` is where it is."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class Collector:
    """The `register` callback of one hook call. `fault` is the first bad registration."""

    def __init__(self, kind: str, owner: Owner) -> None:
        self.kind = kind
        self.owner = owner
        self.entries: list[Entry] = []
        self.fault: PluginFault | None = None
        self.is_open = True

    def __call__(
        self, name: str, factory: Factory = "", *, description: str = "", **options: Any
    ) -> None:
        """See `hookspecs.Register`."""
        known = _types_of(self.kind)
        if unknown := [option for option in options if option not in known]:
            allowed = [key for key in known if key not in ("factory", "description")]
            hint = suggest(unknown[0], allowed, "It takes a name, a factory and a description.")
            raise TypeError(f"register() of a {self.kind} takes no {unknown[0]!r}.{hint}")
        frame = inspect.currentframe()
        line = frame.f_back.f_lineno if frame and frame.f_back else 0
        # The plugin may go on changing its own lists and mappings.
        given = {key: copy.copy(value) for key, value in options.items() if value is not None}
        checked = {"factory": factory, "description": description, **given}
        if problem := next(self._find_problems(name, checked), ""):
            fault = PluginFault(f"registers {problem}", line)
            self.fault = self.fault or fault
            raise fault
        entry = Entry(
            self.kind, name, factory, self.owner, line, description, MappingProxyType(given)
        )
        self.entries.append(entry)

    def _find_problems(self, name: object, given: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is wrong with a registration, beginning with what is registered."""
        if not isinstance(name, str):
            yield f"a {self.kind} without a name: write register(NAME, FACTORY)"
            return
        what = f"{self.kind} {name!r}"
        if not self.is_open:
            yield f"{what} after its hook returned"
        if not _NAME.fullmatch(name.removesuffix(":")):
            yield f"{what}: a name is made of letters, digits and . _ - only"
        if name.endswith(":") and self.kind != "env":
            yield f"{what}: only an env's name may be a scheme"
        if self.kind == "reward" and (not name.isidentifier() or keyword.iskeyword(name)):
            yield (
                f"{what}: the name is used in expressions such as 'format+em', so it must be an "
                f"identifier; use {re.sub(r'[^A-Za-z0-9_]', '_', name)!r}"
            )
        if any(entry.name == name for entry in self.entries):
            yield f"{what} twice"
        for key, value in given.items():
            try:
                _types_of(self.kind)[key].validate_python(value, strict=True)
            except ValidationError as error:
                words = "; or ".join(dict.fromkeys(item["msg"] for item in error.errors()))
                yield f"{what}: {key} is {value!r}: {words}"
        factory = given["factory"]
        if callable(factory) and (problem := find_signature_problem(self.kind, factory)):
            yield f"{what}: {problem}"


def list_gym_envs(owner: Owner, entries: Sequence[Entry]) -> list[Entry]:
    """The Gymnasium classes of a file without hooks, as `gym:NAME`; the file is their owner."""
    if owner.origin is not Origin.FILE:
        return []
    scheme = next(entry for entry in entries if entry.name == SCHEME)  # the built-ins come first
    return [
        replace(
            scheme,
            name=f"{SCHEME}{name}",
            factory=functools.partial(scheme.load(), name=name),
            owner=owner,
            line=line,
            description="a Gymnasium environment of this file",
        )
        for name, line in find_ids(owner.file).items()
    ]
