"""Values of somebody else's configuration that need permission: all that is not known as harmless.

Harmless are registered names of installed packages; numbers, true and false, values of a `Literal`,
and defaults; and the text of our own sections, such as rewards and instructions. Nothing that is
looked at is imported, but for installed plugins. Whether a path exists is not asked.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel

from searchrl.config import RunConfig
from searchrl.config.packaged import is_packaged, package_of
from searchrl.config.sections import MODEL_WORDS, Named
from searchrl.contracts.settings import find_mark
from searchrl.errors import SearchRLError
from searchrl.plugins import Registry
from searchrl.plugins.loading import absolute_source
from searchrl.plugins.provenance import Origin, hash_bytes, read_origin
from searchrl.plugins.signatures import find_retriever_settings, find_settings
from searchrl.trust.folders import find_link

CODE, MODEL, TEXT = "the code", "the model", "the text"
_ASKING = ("the address", "the variable")
"""Marks of settings that make a part ask somebody by its name alone."""


@dataclass(frozen=True, slots=True)
class Need:
    """One value that needs permission: its key, itself and what it is.

    `content` is the SHA-256 of the file that it names as code or as a text (`@`), when it was
    looked at.
    """

    key: str
    value: str
    what: str
    content: str = ""

    def __str__(self) -> str:
        return f"{self.what} '{self.value}' ({self.key})"

    def digest(self) -> str:
        """The SHA-256 of all of it."""
        parts = "\0".join((self.what, self.key, self.value, self.content))
        return hash_bytes(parts.encode("utf-8", "surrogatepass"))


def find_needs(config: RunConfig, registry: Registry, run: Path) -> tuple[Need, ...]:
    """Find all that needs permission in a configuration; what lies inside of `run` may be read.

    Of `registry` only what installed packages registered counts.
    """
    needs = []
    for need in dict.fromkeys(_Finder(registry, run).in_section(config, "")):
        path = Path(need.value.removeprefix("@"))
        with contextlib.suppress(OSError, ValueError):  # none that can be read has no hash
            if (need.what == CODE or need.value.startswith("@")) and path.is_file():
                need = replace(need, content=hash_bytes(path.read_bytes()))
        needs.append(need)
    return tuple(needs)


class _Finder:
    def __init__(self, registry: Registry, run: Path) -> None:
        self.registry = registry
        self.run = run

    def in_section(self, section: BaseModel, prefix: str) -> Iterator[Need]:
        for name, field in type(section).model_fields.items():
            key, value = f"{prefix}{name}", getattr(section, name)
            mark = next(filter(None, map(find_mark, [field.annotation, *field.metadata])), None)
            if key == "plugins":
                sources = map(absolute_source, value)
                yield from (Need(key, one, CODE) for one in sources if not is_installed(one))
            elif key == "run_dir":  # never taken from a run folder
                continue
            elif key == "log.trackers":
                for tracker in value:
                    yield Need(key, tracker.name, "the tracker")
                    yield from texts_of(key, tracker.settings)
            elif isinstance(value, Named):
                yield from self.in_named(name, value.name, value.settings, key)
            elif key == "algorithm.settings":
                yield from self.in_named("algorithm", section.name, value, key)  # type: ignore[attr-defined]
            elif key == "alarms.watch":
                for alarm, spec in value.items():
                    yield from self.in_named("alarm", alarm, spec.settings, f"{key}.{alarm}")
            elif key == "policy" and value.startswith("endpoint:"):
                yield Need(key, value, "the address")
            elif isinstance(value, BaseModel):
                yield from self.in_section(value, f"{key}.")
            elif isinstance(value, list) and any(isinstance(one, BaseModel) for one in value):
                for number, one in enumerate(value):
                    yield from self.in_section(one, f"{key}.{number}.")
            elif isinstance(value, dict) and name == "extra":
                yield from texts_of(key, value)
            elif mark and isinstance(value, str) and value != field.get_default():
                is_ours = is_packaged(value) and is_installed(package_of(value))
                if mark.what == MODEL and (value in MODEL_WORDS or is_ours):
                    continue
                if mark.what not in (MODEL, "the path") or not self.is_inside(value):
                    yield Need(key, value, mark.what)

    def is_inside(self, name: str) -> bool:
        path, root = Path(os.path.abspath(name)), Path(os.path.abspath(self.run))
        return path.is_relative_to(root) and find_link(path, root) is None

    def in_named(
        self, kind: str, name: str, settings: Mapping[str, Any], key: str
    ) -> Iterator[Need]:
        """Needs of a part: for its name, and for the texts in its settings."""
        known: Mapping[str, inspect.Parameter] = {}
        retrievers: Mapping[str, bool] = {}
        is_builtin = False
        with contextlib.suppress(SearchRLError):  # a name that is not registered
            entry = self.registry.get(kind, name)
            if entry.owner.is_installed:
                is_safe, is_builtin = False, entry.owner.origin is Origin.BUILTIN
                with contextlib.suppress(SearchRLError):  # it cannot be loaded
                    known = find_settings(entry.load())
                    retrievers = find_retriever_settings(entry.load())
                    is_safe = not entry.argument or entry.is_safe_name()
                marks = {mark.what for one in known.values() if (mark := find_mark(one.annotation))}
                if not is_safe:
                    yield Need(f"{key}.name", name, CODE)
                elif asks := next(filter(marks.__contains__, _ASKING), None):
                    yield Need(f"{key}.name", name, f"{asks} of")
        for setting, value in settings.items():
            one, place = known.get(setting), f"{key}.{setting}"
            if one is not None and value == one.default:
                continue
            if setting in retrievers:
                is_list = isinstance(value, list)
                for number, inner in enumerate(value if is_list else [value]):
                    yield from self.in_retriever(inner, f"{place}.{number}" if is_list else place)
                continue
            is_ours = kind == "protocol" and (setting == "instruction" or is_builtin)
            allowed = _literals(one.annotation) if one is not None else ()
            mark = find_mark(one.annotation) if one is not None else None
            for text in texts_in(value):
                is_text = is_ours and (not text.startswith("@") or self.is_inside(text[1:]))
                if text not in allowed and not is_text:
                    yield Need(place, text, mark.what if mark else TEXT)

    def in_retriever(self, value: Any, key: str) -> Iterator[Need]:
        """Needs of a retriever that a setting names."""
        inner = {"name": value} if isinstance(value, str) else value
        if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
            rest = {name: given for name, given in inner.items() if name != "name"}
            yield from self.in_named("retriever", inner["name"], rest, key)
        else:
            yield from texts_of(key, value)


def texts_of(key: str, value: Any) -> Iterator[Need]:
    """A need for every text in a value."""
    return (Need(key, text, TEXT) for text in texts_in(value))


def texts_in(value: Any) -> Iterator[str]:
    """Every text at any depth, keys of inner mappings among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from texts_in([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts_in(inner)


def _literals(annotation: Any) -> tuple[Any, ...]:
    """The values of every `Literal` and `StrEnum` in a type."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return tuple(annotation)
    return tuple(value for part in get_args(annotation) for value in _literals(part))


def is_installed(module: str) -> bool:
    """True for the module that an installed distribution has under this name.

    A module of the same name that lies elsewhere on Python's path is another one. Nor is it what
    a package runs as a program (`__main__`), or anything of the standard library.
    """
    top = module.partition(".")[0]
    if module == "searchrl":
        return True
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None or "__main__" in module.split("."):
        return False
    places = [*(spec.submodule_search_locations or filter(None, [spec.origin]))]
    roots = []
    for owner in importlib.metadata.packages_distributions().get(top, ()):
        roots.append(str(importlib.metadata.distribution(owner).locate_file("")))
        origin = read_origin(owner)
        if origin.get("dir_info", {}).get("editable"):
            roots.append(unquote(urlsplit(str(origin.get("url", ""))).path))
    return bool(places) and all(
        any(Path(place).resolve().is_relative_to(Path(root).resolve()) for root in roots)
        for place in places
    )
