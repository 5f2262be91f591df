"""The code that settings name: plugin files, modules, and modules inside names of environments.

Owns what counts as code, whether it belongs to an installed distribution, and its hash. It imports
nothing of what it looks at. A file that the setting `instruction` names counts as well: its text
goes into every prompt, and into the model card of an export. So does whom a retriever, a judge or
an environment asks: queries go there, and a key with them; the files in which answers and splits
are kept, because they are written; and the rubrics that a judge is sent. Settings are searched to
the end: how deep they may be is decided where they are read, in `config.yaml_text`.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from searchrl.plugins.loading import absolute_source
from searchrl.plugins.owners import hash_bytes, hash_package, read_origin
from searchrl.plugins.packages import ADDRESSES, ASKED_BY, READ, WRITTEN

_ID = re.compile(r"([A-Za-z_][\w.]*):[\w./\-]+")
"""An id of Gymnasium, or an entry point: `package.module:Name-v0`."""

_ADDRESS = re.compile(r"https?:", re.IGNORECASE)

KEY_SETTING = "key_env"
"""The setting beside an address that names the environment variable with the key for it."""


class CodeKind(StrEnum):
    """How code is named."""

    FILE = "file"
    """A plugin file."""
    MODULE = "module"
    """A module that Python imports."""
    INSTRUCTION = "instruction"
    """A text that is read into prompts: an instruction, or the rubric of a judge."""
    ADDRESS = "address"
    """A server that is sent queries, and the key in an environment variable if one is named."""
    CACHE = "cache"
    """A file or folder that is written: answers of a server that are kept, or a split."""


@dataclass(frozen=True, slots=True)
class NamedCode:
    """One piece of code. `source` is an absolute path, a module, or an address with its key.

    `key` is the setting.
    """

    kind: CodeKind
    source: str
    key: str

    def __str__(self) -> str:
        return f"{self.kind} {self.source} ({self.key})"

    @property
    def is_there(self) -> bool:
        """Whether there is anything to run."""
        if self.kind is CodeKind.MODULE:
            return _find_top(self.source) is not None
        return self.kind in _NO_CODE or os.path.lexists(self.source)

    @property
    def is_installed(self) -> bool:
        """Whether it is a module of an installed distribution."""
        return self.kind is CodeKind.MODULE and is_installed(self.source)

    def digest(self) -> str:
        """The SHA-256 of the code on disk: a file, or all of a package; "" if it has none.

        Of an address and of a cache, that of its text.
        """
        if self.kind in _NO_CODE:
            return hash_bytes(f"{self.kind} {self.source}".encode("utf-8", "surrogatepass"))
        try:
            if self.kind is not CodeKind.MODULE:
                path = Path(self.source)
                return hash_bytes(path.read_bytes()) if os.path.isfile(path) else ""
            spec = _find_top(self.source)
            if spec is None:
                return ""
            if spec.submodule_search_locations is None:
                return hash_bytes(Path(spec.origin).read_bytes()) if spec.origin else ""
            found = [hash_package(Path(place)) for place in spec.submodule_search_locations]
            return hashlib.sha256("\n".join(found).encode()).hexdigest() if found else ""
        except OSError:
            return ""


_NO_CODE = (CodeKind.ADDRESS, CodeKind.CACHE)
"""What is judged by its name, and not by what is in it."""


def find_code(settings: Mapping[str, Any]) -> tuple[NamedCode, ...]:
    """All code that settings name, each once; settings are a whole config or a layer of one."""
    found = [*_find_plugins(settings.get("plugins")), *_find_in_tasks(settings)]
    return tuple({(code.kind, code.source): code for code in reversed(found)}.values())[::-1]


def _find_plugins(plugins: Any) -> Iterator[NamedCode]:
    for source in [plugins] if isinstance(plugins, str) else plugins or ():
        if isinstance(source, str) and source:
            named = absolute_source(source)
            kind = CodeKind.FILE if Path(named).is_absolute() else CodeKind.MODULE
            yield NamedCode(kind, named, "plugins")


def _find_in_tasks(settings: Mapping[str, Any]) -> Iterator[NamedCode]:
    """Code in the short forms of the first task, and in all tasks: a list, or single entries."""
    tasks = settings.get("tasks") or ()
    entries = [("", settings), *((f"tasks.{i}.", task) for i, task in _numbered(tasks))]
    for prefix, task in entries:
        if not isinstance(task, Mapping):
            continue
        env, protocol = task.get("env"), task.get("protocol")
        name = env.get("name") if isinstance(env, Mapping) else env
        own = {k: v for k, v in env.items() if k != "name"} if isinstance(env, Mapping) else None
        for module in [*_modules_in_name(name), *_modules_in_values(own)]:
            yield NamedCode(CodeKind.MODULE, module, f"{prefix}env")
        text = protocol.get("instruction") if isinstance(protocol, Mapping) else None
        if isinstance(text, str) and text.startswith("@"):
            path = str(Path(text[1:]).absolute())
            yield NamedCode(CodeKind.INSTRUCTION, path, f"{prefix}protocol.instruction")
        # An environment may have retrievers of its own.
        for part in ("retriever", "env", "judge"):
            for kind, source in _servers_in_values(task.get(part)):
                yield NamedCode(kind, source, f"{prefix}{part}")


def _numbered(tasks: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(tasks, Mapping):
        yield from tasks.items()
    elif isinstance(tasks, list | tuple):  # anything else is refused when the settings are read
        yield from enumerate(tasks)


def _modules_in_name(name: Any) -> list[str]:
    """The modules in the name of an environment: what stands between a scheme and the last part.

    `gym:games.chess:Chess-v0` imports `games.chess`; so may the scheme of any plugin.
    """
    parts = name.split(":")[1:-1] if isinstance(name, str) else []
    return [part for part in parts if re.fullmatch(r"[^\W\d][\w.]*", part) and _find_top(part)]


def _modules_in_values(value: Any) -> Iterator[str]:
    """The modules in the settings of an environment: `make: {env_id: games:Chess-v0}`."""
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _modules_in_values(inner)
    elif isinstance(value, str) and (match := _ID.fullmatch(value)) and _find_top(match[1]):
        yield match[1]


def _servers_in_values(value: Any, key_env: object = None) -> Iterator[tuple[CodeKind, str]]:
    """Who is asked in the settings of a part, with the variable that holds the key, and its files.

    Another variable makes another address: who trusts a server has not trusted it with every key.
    The name of a part of our packages that has an address by default stands for that address.
    """
    if isinstance(value, Mapping):
        by_name = {key: _address_of(value.get(key)) for key in ASKED_BY}
        address, own_key = next(filter(None, by_name.values()), ("", None))
        key_env = value.get(KEY_SETTING, own_key or key_env)
        if address and not value.get("url"):
            yield from _servers_in_values(address, key_env)
        for key, inner in value.items():
            if key in (*WRITTEN, *READ) and isinstance(inner, str):
                kind = CodeKind.CACHE if key in WRITTEN else CodeKind.INSTRUCTION
                if kind is CodeKind.INSTRUCTION or inner not in ("auto", "off"):
                    yield kind, str(Path(os.path.expanduser(inner)).absolute())
            elif not by_name.get(key):
                yield from _servers_in_values(inner, key_env)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _servers_in_values(inner, key_env)
    elif isinstance(value, str) and _ADDRESS.match(value):
        yield CodeKind.ADDRESS, f"{value} with the key in {key_env}" if key_env else value
    elif known := _address_of(value):
        yield from _servers_in_values(*known)


def _address_of(name: object) -> tuple[str, str] | None:
    """Whom a part of our packages asks by default, and with which key; it may be `plugin:name`."""
    return ADDRESSES.get(name.rpartition(":")[2]) if isinstance(name, str) else None


def _find_top(module: str) -> importlib.machinery.ModuleSpec | None:
    """Where the top package of a module is; None if it is nowhere. This imports nothing."""
    try:
        return importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):  # `__main__`, or no name of a module
        return None


def is_installed(module: str) -> bool:
    """Whether a module is the one that an installed distribution has under this name.

    A module of the same name that lies elsewhere on Python's path is another one. Nor is it what
    a package runs as a program (`__main__`), or anything of the standard library.
    """
    spec = _find_top(module)
    if spec is None or "__main__" in module.split("."):
        return False
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    if not places and spec.origin:
        places = [Path(spec.origin)]
    owners = importlib.metadata.packages_distributions().get(module.partition(".")[0], ())
    roots = [root for owner in owners for root in _roots(owner)]
    return bool(places) and all(
        any(place.resolve().is_relative_to(root) for root in roots) for place in places
    )


def _roots(distribution: str) -> Iterator[Path]:
    """The folders in which the modules of a distribution lie."""
    yield Path(str(importlib.metadata.distribution(distribution).locate_file(""))).resolve()
    origin = read_origin(distribution)
    if (origin.get("dir_info") or {}).get("editable"):
        yield Path(unquote(urlsplit(str(origin.get("url", ""))).path)).resolve()
