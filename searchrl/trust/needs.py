"""Values of somebody else's configuration that need permission: all that is not known as harmless.

Harmless are registered names of installed packages; numbers, true and false, values of a `Literal`,
and defaults; and the text of our own sections, such as rewards and instructions. Nothing that is
looked at is imported, but for installed plugins. Whether a path exists is asked only of a model
inside of the run folder: a name that is no folder there is one of a hub.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from searchrl.config import Part, RunConfig
from searchrl.config.endpoint import endpoint_address
from searchrl.config.packaged import is_packaged
from searchrl.config.sections import MODEL_WORDS, Named, Section
from searchrl.contracts.settings import find_mark
from searchrl.errors import SearchRLError
from searchrl.plugins import Registry
from searchrl.plugins.loading import absolute_source
from searchrl.plugins.provenance import Origin, hash_bytes
from searchrl.plugins.signatures import find_retriever_settings, find_settings
from searchrl.trust.folders import find_link

CODE, PATH, MODEL, TEXT, ADDRESS = "the code", "the path", "the model", "the text", "the address"
PROMPT = "the prompt"
"""An instruction or a tag: harmless, but for a file (`@`) outside of the run folder."""
_UNKNOWN = inspect.Parameter("unknown", inspect.Parameter.KEYWORD_ONLY)


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
    for need in dict.fromkeys(_Finder(registry, run).find(config)):
        path = Path(need.value.removeprefix("@"))
        with contextlib.suppress(OSError, ValueError):  # none that can be read has no hash
            if (need.what == CODE or need.value.startswith("@")) and path.is_file():
                need = replace(need, content=hash_bytes(path.read_bytes()))
        needs.append(need)
    return tuple(needs)


@dataclass(frozen=True, slots=True)
class _Finder:
    registry: Registry
    run: Path

    def find(self, config: RunConfig) -> Iterator[Need]:
        yield from self.in_texts("plugins", [*map(absolute_source, config.plugins)], CODE)
        if endpoint_address(config.policy) is not None:
            yield Need("policy", config.policy, ADDRESS)
        yield from self.in_section(config)
        for part in config.parts():
            yield from self.in_part(part)

    def in_section(self, section: Section, prefix: str = "") -> Iterator[Need]:
        """Needs of our own keys: those whose type has a mark."""
        for name, field in type(section).model_fields.items():
            key, value = f"{prefix}{name}", getattr(section, name)
            mark = find_mark(field.annotation, *field.metadata)
            if mark and value != field.get_default():
                yield from self.in_texts(key, value, mark.what)
            for place, one in _entries(key, value):
                if isinstance(one, Section):
                    yield from self.in_section(one, f"{place}.")

    def in_part(self, part: Part) -> Iterator[Need]:
        """Needs of a part: for its name, and for the texts in its settings."""
        known: Mapping[str, inspect.Parameter] = {}
        retrievers: Collection[str] = ()
        what, is_builtin = "the tracker" if part.kind == "tracker" else "", False
        with contextlib.suppress(SearchRLError):  # nobody registers the name, or it cannot load
            entry = self.registry.get(part.kind, part.name)
            if entry.owner.is_installed:
                usual, what = what, CODE
                is_builtin = entry.owner.origin is Origin.BUILTIN
                known = find_settings(entry.load())
                retrievers = find_retriever_settings(entry.load())
                if not entry.argument or entry.is_safe_name():
                    what = _who_is_asked(known) or usual
        if what:
            yield Need(f"{part.key}.name", part.name, what)
        for setting, value in part.settings.items():
            key, one = f"{part.key}.{setting}", known.get(setting, _UNKNOWN)
            if value == one.default:
                continue
            if setting in retrievers:
                for place, inner in _entries(key, value):
                    yield from self.in_retriever(place, inner)
            elif part.kind == "protocol" and (setting == "instruction" or is_builtin):
                yield from self.in_texts(key, value, PROMPT)
            else:
                mark, allowed = find_mark(one.annotation), _literals(one.annotation)
                yield from self.in_texts(key, value, mark.what if mark else TEXT, allowed)

    def in_retriever(self, key: str, value: Any) -> Iterator[Need]:
        """Needs of a retriever that a setting names."""
        try:
            inner = Named.model_validate(value)
        except ValidationError:
            return self.in_texts(key, value, TEXT)
        return self.in_part(Part(key, "retriever", inner.name, inner.settings))

    def in_texts(
        self, key: str, value: Any, what: str, allowed: Collection[Any] = ()
    ) -> Iterator[Need]:
        """A need for every text in a value that is neither allowed nor harmless."""
        for text in texts_in(value):
            if text not in allowed and not self.is_harmless(text, what):
                yield Need(key, text, what)

    def is_harmless(self, text: str, what: str) -> bool:
        if what == CODE:
            return is_installed(text)
        if what == PROMPT:
            return not text.startswith("@") or self.is_inside(text[1:])
        if what == MODEL and (text in MODEL_WORDS or is_packaged(text)):
            return text in MODEL_WORDS or is_installed(text)
        is_inside = what in (MODEL, PATH) and self.is_inside(text)
        return is_inside and (what == PATH or os.path.isdir(text))

    def is_inside(self, name: str) -> bool:
        path = Path(os.path.abspath(os.path.expanduser(name)))
        root = Path(os.path.abspath(self.run))
        return path.is_relative_to(root) and find_link(path, root) is None


def _who_is_asked(settings: Mapping[str, inspect.Parameter]) -> str:
    """`the address of` for a part that asks a server, by its name alone; else ""."""
    marks = (find_mark(one.annotation) for one in settings.values())
    asking = (mark.what for mark in marks if mark and mark.what in (ADDRESS, "the variable"))
    return next((f"{what} of" for what in asking), "")


def _entries(key: str, value: Any) -> list[tuple[str, Any]]:
    """The entries of a list with their keys; any other value with its own."""
    if isinstance(value, list):
        return [(f"{key}.{number}", one) for number, one in enumerate(value)]
    return [(key, value)]


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


def is_installed(name: str) -> bool:
    """True for a module, or `package:path`, that an installed distribution has under this name.

    A module of the same name that lies elsewhere on Python's path is another one. Nor is it what
    a package runs as a program (`__main__`), or anything of the standard library.
    """
    module = name.partition(":")[0]
    top = module.partition(".")[0]
    if module == "searchrl":
        return True
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None or "__main__" in module.split("."):
        return False
    roots = []
    for distribution in importlib.metadata.packages_distributions().get(top, ()):
        owner = importlib.metadata.distribution(distribution)
        origin = json.loads(owner.read_text("direct_url.json") or "{}")  # PEP 610
        is_editable = origin.get("dir_info", {}).get("editable")
        root = unquote(urlsplit(origin["url"]).path) if is_editable else owner.locate_file("")
        roots.append(Path(str(root)).resolve())
    places = [*(spec.submodule_search_locations or filter(None, [spec.origin]))]
    return bool(places) and all(
        any(Path(place).resolve().is_relative_to(root) for root in roots) for place in places
    )
