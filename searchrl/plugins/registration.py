"""The `register` callbacks that hooks receive: they check and collect, and change nothing else.

Owns what a legal registration is (names, factories, signatures, options) and the fault that says
which line was wrong. `loading` calls the hooks; only if the whole plugin loads do the collected
entries become part of a registry. A file of Gymnasium classes registers without any hook.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from searchrl.config.packaged import is_packaged
from searchrl.contracts import TEXT_TURNS, TURNS
from searchrl.envs.gym_files import SCHEME, find_ids
from searchrl.hookspecs import Factory
from searchrl.plugins.owners import Origin, Owner
from searchrl.plugins.registry import Entry
from searchrl.plugins.signatures import find_signature_problem

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_LAZY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


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

    def __call__(self, name: str, factory: Factory = "", *, description: str = "") -> None:
        """See `hookspecs.Register`."""
        self._add(name, factory, description, {})

    def _add(self, name: object, factory: Any, description: object, options: Any) -> None:
        line = self._calling_line()
        for problem in self._find_problems(name, factory, description, options):
            fault = PluginFault(f"registers {problem}", line)
            self.fault = self.fault or fault
            raise fault
        entry = Entry(
            *(self.kind, str(name), factory, self.owner, line, str(description)),
            MappingProxyType(options),
        )
        self.entries.append(entry)

    def _calling_line(self) -> int:
        """The line in the plugin: the first frame outside this file."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return frame.f_lineno if frame else 0

    def _find_problems(
        self, name: object, factory: object, description: object, options: Any
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
            return
        if name.endswith(":") and self.kind != "env":
            yield f"{what}: only an env's name may be a scheme"
        if self.kind == "reward" and (not name.isidentifier() or keyword.iskeyword(name)):
            yield (
                f"{what}: the name is used in expressions such as 'format+em', so it must be an "
                f"identifier; use {re.sub(r'[^A-Za-z0-9_]', '_', name)!r}"
            )
        if any(entry.name == name for entry in self.entries):
            yield f"{what} twice"
        yield from _find_factory_problems(what, factory)
        problem = find_signature_problem(self.kind, factory) if callable(factory) else ""
        if problem:
            yield f"{what}: {problem}"
        if not isinstance(description, str):
            yield f"{what}: description is {description!r}, not text"


_DEFAULTS = {
    "protocol": "the name of a tag protocol",
    "reward": "a reward expression such as 'format+em'",
    "retriever": "the name of a retriever",
}
"""What an environment may name, to be used where a configuration names none."""


class RetrieverCollector(Collector):
    """`register` of retrievers, which says who may call them."""

    def __call__(
        self, name: str, factory: Factory = "", *, concurrent: bool = True, description: str = ""
    ) -> None:
        """See `hookspecs.RegisterTool`."""
        self._add(name, factory, description, {"concurrent": concurrent})

    def _find_problems(
        self, name: object, factory: object, description: object, options: Any
    ) -> Iterator[str]:
        yield from super()._find_problems(name, factory, description, options)
        for option, meant in (("concurrent", "several calls at once"), ("group", "groups")):
            if not isinstance(options.get(option, True), bool):
                said = f"{option} is {options[option]!r}; expected True if it takes {meant}"
                yield f"{self.kind} {name!r}: {said}, else False"


class RewardCollector(RetrieverCollector):
    """`register` of rewards, which says besides whether one scores episodes or groups."""

    def __call__(
        self,
        name: str,
        factory: Factory = "",
        *,
        group: bool = False,
        concurrent: bool = True,
        description: str = "",
    ) -> None:
        """See `hookspecs.RegisterReward`."""
        self._add(name, factory, description, {"group": group, "concurrent": concurrent})


class EnvCollector(Collector):
    """`register` of `register_envs`, which takes scripted policies too."""

    def __call__(
        self,
        name: str,
        factory: Factory = "",
        *,
        protocol: str | None = None,
        reward: str | None = None,
        retriever: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        expert: Factory | None = None,
        scripts: Mapping[str, Factory] | None = None,
        policies: Mapping[str, str] | None = None,
        turns: str = TEXT_TURNS,
        description: str = "",
    ) -> None:
        """See `hookspecs.register_envs`."""
        listed = tuple(tools) if isinstance(tools, list | tuple) else tools
        options = {
            **{"protocol": protocol, "reward": reward, "retriever": retriever},
            **{"tools": listed, "expert": expert},
            **{"scripts": _copied(scripts), "policies": _copied(policies), "turns": turns},
        }
        self._add(name, factory, description, options)

    def _find_problems(
        self, name: object, factory: object, description: object, options: Any
    ) -> Iterator[str]:
        yield from super()._find_problems(name, factory, description, options)
        what = f"env {name!r}"
        for option, meant in _DEFAULTS.items():
            value = options[option]
            if value is not None and (not isinstance(value, str) or not value.strip()):
                yield f"{what}: {option} is {value!r}, not {meant}"
        tools = options["tools"]
        if not isinstance(tools, tuple) or not all(isinstance(tool, Mapping) for tool in tools):
            yield (
                f"{what}: tools is {tools!r}, not a list of mappings with name, description and "
                "parameters"
            )
        if options["turns"] not in TURNS:
            yield f"{what}: turns is {options['turns']!r}; expected one of {', '.join(TURNS)}"
        if not isinstance(options["scripts"], Mapping):
            yield f"{what}: scripts is not a mapping of name to factory"
        if options["expert"] is not None:
            yield from _find_factory_problems(f"the expert of {what}", options["expert"])
        for script, other in options["scripts"].items():
            if not isinstance(script, str) or not _NAME.fullmatch(script) or script == "expert":
                yield f"{what}: {script!r} is no name for a script"
            yield from _find_factory_problems(f"the script '{script}' of {what}", other)
        yield from _find_policy_problems(what, options["policies"])


COLLECTORS: Mapping[str, type[Collector]] = {
    "env": EnvCollector,
    "reward": RewardCollector,
    "retriever": RetrieverCollector,
}
"""The `register` callback of kinds that take more than a name, a factory and a description."""


def _copied(mapping: Any) -> Any:
    """A copy: the plugin may go on changing its own mapping."""
    return dict(mapping) if isinstance(mapping, Mapping) else mapping or {}


def _find_policy_problems(what: str, policies: object) -> Iterator[str]:
    """What is wrong with the policies of an environment; whether they are there, is asked later."""
    if not isinstance(policies, Mapping):
        yield f"{what}: policies is not a mapping of protocol to policy"
        return
    for protocol, policy in policies.items():
        if not isinstance(protocol, str) or not _NAME.fullmatch(protocol):
            yield f"{what}: policies has {protocol!r}, which is no name of a protocol"
        elif not isinstance(policy, str) or not is_packaged(policy):
            yield (
                f"{what}: the policy for protocol {protocol!r} is {policy!r}; expected "
                "'package:folder', a folder in a package, such as 'my_package:assets/tiny'"
            )


def _find_factory_problems(what: str, factory: object) -> Iterator[str]:
    if isinstance(factory, str):
        if not _LAZY.fullmatch(factory):
            yield f"{what}: {factory!r} is not of the form 'package.module:attribute'"
    elif not callable(factory):
        yield (
            f"{what}: {type(factory).__name__} is neither a callable nor a string "
            "'package.module:attribute'"
        )


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
