"""The `register` callbacks that hooks receive: they validate and collect, and touch nothing else.

Owns what a legal registration is (names, factories, signatures, options) and the fault that says
which line was wrong. What was collected becomes part of a registry only if the whole plugin loads;
that decision, and the calling of hooks, is in `plugins.py`.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from searchrl.hookspecs import Factory
from searchrl.plugins.owners import Owner
from searchrl.plugins.registry import Entry
from searchrl.plugins.signatures import find_signature_problem

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_LAZY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class PluginFault(Exception):
    """Something a plugin did wrong that no exception of its own reports; `line` is where."""

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

    def __call__(self, name: str, factory: Factory, *, description: str = "") -> None:
        """See `hookspecs.Register`."""
        self._add(name, factory, description, {})

    def _add(self, name: object, factory: Any, description: object, options: Any) -> None:
        line = self._calling_line()
        try:
            self._check(name, factory, description, options, line)
        except PluginFault as fault:
            self.fault = self.fault or fault
            raise
        self.entries.append(
            Entry(
                self.kind,
                str(name),
                factory,
                self.owner,
                line,
                str(description),
                MappingProxyType(options),
            )
        )

    def _calling_line(self) -> int:
        """The line in the plugin: the first frame outside this file."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return frame.f_lineno if frame else 0

    def _check(
        self, name: object, factory: object, description: object, options: Any, line: int
    ) -> None:
        what = f"{self.kind} {name!r}"
        if not self.is_open:
            raise PluginFault(f"registers {what} after its hook returned", line)
        if not isinstance(name, str) or not _NAME.fullmatch(name.removesuffix(":")):
            raise PluginFault(
                f"registers {what}: a name is made of letters, digits and . _ - only", line
            )
        if name.endswith(":") and self.kind != "env":
            raise PluginFault(f"registers {what}: only an env's name may be a scheme", line)
        if self.kind == "reward" and (not name.isidentifier() or keyword.iskeyword(name)):
            raise PluginFault(
                f"registers {what}: the name is used in expressions such as 'format+em', so it "
                f"must be an identifier; use {re.sub(r'[^A-Za-z0-9_]', '_', name)!r}",
                line,
            )
        if any(entry.name == name for entry in self.entries):
            raise PluginFault(f"registers {what} twice", line)
        self._check_factory(what, factory, line)
        problem = find_signature_problem(self.kind, factory) if callable(factory) else ""
        if problem:
            raise PluginFault(f"registers {what}: {problem}", line)
        if not isinstance(description, str):
            raise PluginFault(f"registers {what}: description is {description!r}, not text", line)

    def _check_factory(self, what: str, factory: object, line: int) -> None:
        if isinstance(factory, str):
            if not _LAZY.fullmatch(factory):
                raise PluginFault(
                    f"registers {what}: {factory!r} is not of the form 'package.module:attribute'",
                    line,
                )
        elif not callable(factory):
            raise PluginFault(
                f"registers {what}: {type(factory).__name__} is neither a callable nor a string "
                "'package.module:attribute'",
                line,
            )


class EnvCollector(Collector):
    """`register` of `register_envs`, which takes scripted policies too."""

    def __call__(
        self,
        name: str,
        factory: Factory,
        *,
        protocol: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        expert: Factory | None = None,
        scripts: Mapping[str, Factory] | None = None,
        description: str = "",
    ) -> None:
        """See `hookspecs.register_envs`."""
        # A copy: the plugin may go on changing its own mapping.
        copied = dict(scripts) if isinstance(scripts, Mapping) else scripts or {}
        listed = tuple(tools) if isinstance(tools, list | tuple) else tools
        options = {"protocol": protocol, "tools": listed, "expert": expert, "scripts": copied}
        self._add(name, factory, description, options)

    def _check(
        self, name: object, factory: object, description: object, options: Any, line: int
    ) -> None:
        super()._check(name, factory, description, options, line)
        what = f"env {name!r}"
        protocol = options["protocol"]
        if protocol is not None and (not isinstance(protocol, str) or not protocol):
            raise PluginFault(
                f"registers {what}: protocol is {protocol!r}, not the name of a tag protocol", line
            )
        tools = options["tools"]
        if not isinstance(tools, tuple) or not all(isinstance(tool, Mapping) for tool in tools):
            raise PluginFault(
                f"registers {what}: tools is {tools!r}, not a list of mappings with name, "
                "description and parameters",
                line,
            )
        if not isinstance(options["scripts"], Mapping):
            raise PluginFault(
                f"registers {what}: scripts is not a mapping of name to factory", line
            )
        if options["expert"] is not None:
            self._check_factory(f"the expert of {what}", options["expert"], line)
        for script, other in options["scripts"].items():
            if not isinstance(script, str) or not _NAME.fullmatch(script) or script == "expert":
                raise PluginFault(f"registers {what}: {script!r} is no name for a script", line)
            self._check_factory(f"the script '{script}' of {what}", other, line)
