"""The `register` callback that hooks receive: it checks and collects, and changes nothing else.

Owns what a legal registration is (names, factories, signatures, options) and the fault that says
which line was wrong. `loading` calls the hooks; only if the whole plugin loads do the collected
entries become part of a registry. A file of Gymnasium classes registers without any hook.
"""

from __future__ import annotations

import copy
import functools
import inspect
import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from searchrl.config.packaged import is_packaged
from searchrl.envs.gym_ids import SCHEME, find_ids
from searchrl.errors import suggest
from searchrl.hookspecs import Factory
from searchrl.plugins.provenance import Origin, Owner
from searchrl.plugins.registry import Entry
from searchrl.plugins.signatures import find_signature_problem

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_LAZY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_FACTORY = "a callable or a string 'package.module:attribute'"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_factory(value: object) -> bool:
    return callable(value) or (isinstance(value, str) and bool(_LAZY.fullmatch(value)))


def _are(inner: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A check of a mapping of names."""
    return lambda value: (
        isinstance(value, Mapping)
        and all(
            isinstance(name, str) and _NAME.fullmatch(name) and inner(one)
            for name, one in value.items()
        )
    )


def _are_tools(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(tool, Mapping) for tool in value)


def _is_folder(value: object) -> bool:
    return isinstance(value, str) and is_packaged(value)


_CONCURRENT = (_is_bool, "True if it takes several calls at once, else False")

_OPTIONS: Mapping[str, Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "env": {
        "protocol": (_is_text, "the name of a tag protocol"),
        "reward": (_is_text, "a reward expression such as 'format+em'"),
        "retriever": (_is_text, "the name of a retriever"),
        "tools": (_are_tools, "a list of mappings with name, description and parameters"),
        "expert": (_is_factory, _FACTORY),
        "scripts": (_are(_is_factory), f"a mapping of name to {_FACTORY}"),
        "policies": (
            _are(_is_folder),
            "a mapping of protocol to a folder in a package, such as 'my_package:assets/tiny'",
        ),
        "is_safe": (_is_factory, _FACTORY),
    },
    "reward": {
        "group": (_is_bool, "True if it takes groups, else False"),
        "concurrent": _CONCURRENT,
    },
    "retriever": {"concurrent": _CONCURRENT},
}
"""What `register` of a kind takes besides name, factory and description: a check, and its words."""


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
        """See the `Register` classes of `hookspecs`."""
        known = _OPTIONS.get(self.kind, {})
        if unknown := [option for option in options if option not in known]:
            hint = suggest(unknown[0], known, "It takes a name, a factory and a description.")
            raise TypeError(f"register() of a {self.kind} takes no {unknown[0]!r}.{hint}")
        frame = inspect.currentframe()
        line = frame.f_back.f_lineno if frame and frame.f_back else 0
        # The plugin may go on changing its own lists and mappings.
        given = {key: copy.copy(value) for key, value in options.items() if value is not None}
        for problem in self._find_problems(name, factory, description, given):
            fault = PluginFault(f"registers {problem}", line)
            self.fault = self.fault or fault
            raise fault
        entry = Entry(
            self.kind, name, factory, self.owner, line, description, MappingProxyType(given)
        )
        self.entries.append(entry)

    def _find_problems(
        self, name: object, factory: object, description: object, options: Mapping[str, Any]
    ) -> Iterator[str]:
        """What is wrong with a registration, beginning with what is registered; lazily."""
        if not isinstance(name, str):
            said = getattr(name, "__name__", "")
            said = said if said.isidentifier() else type(name).__name__
            yield f'{self.kind} {said} without a name: write register("NAME", {said})'
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
        if not _is_factory(factory):
            yield f"{what}: its factory is {factory!r}; expected {_FACTORY}"
        if callable(factory) and (problem := find_signature_problem(self.kind, factory)):
            yield f"{what}: {problem}"
        if not isinstance(description, str):
            yield f"{what}: description is {description!r}; expected text"
        for option, value in options.items():
            is_good, meant = _OPTIONS[self.kind][option]
            if not is_good(value):
                yield f"{what}: {option} is {value!r}; expected {meant}"


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
