"""What is wrong with a configuration, in lines for a person: the key, the value, file and line.

Owns the words. pydantic finds the faults; its names of types and of the parts of a union are not
shown. Pure functions; called by `tree.build_config`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from searchrl.errors import show_value, suggest

_MAX_LINES = 20
"""Faults that are listed; the others are counted."""
_MAX_SHOWN = 60
"""Characters of a key that are shown."""


class FileLayer(dict[str, Any]):
    """The keys of a config file, and where each of them stands: `("optim", "lr")` -> line 12."""

    def __init__(
        self, values: Mapping[str, Any], path: str | Path, lines: Mapping[tuple[str, ...], int]
    ) -> None:
        super().__init__(values)
        self.path = path
        self.lines = lines

    def place_of(self, location: Sequence[str]) -> str:
        """`run.yaml:12`: the line of the key, or of what holds it; the file if nothing is known."""
        for end in range(len(location), 0, -1):
            if line := self.lines.get(tuple(location[:end])):
                return f"{self.path}:{line}"
        return str(self.path)


def explain(
    error: ValidationError,
    merged: Mapping[str, Any],
    layers: Sequence[Mapping[str, Any]],
    root: type[BaseModel],
    task_keys: Sequence[str],
) -> str:
    """All faults of a merged configuration, one line each, as far as there is room.

    `layers` are what was merged, later wins; `root` is the whole tree, and `task_keys` are those
    of its first task that also stand at the top.
    """
    faults: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for item in error.errors(include_url=False, include_context=False):
        location = _real(merged, item["loc"], is_new=item["type"] in ("missing", "extra_forbidden"))
        faults.setdefault(location, []).append(dict(item))
    # Of a value that may be a text or a list, only what is wrong inside the list is of use.
    holders = {key[:end] for key in faults for end in range(len(key))}
    faults = {key: items for key, items in faults.items() if key not in holders}
    lines = [
        _explain_one(location, items, layers, root, task_keys)
        for location, items in list(faults.items())[:_MAX_LINES]
    ]
    if len(faults) > _MAX_LINES:
        lines.append(f"  … and {len(faults) - _MAX_LINES} more; fix these first")
    return "\n".join(lines)


def _explain_one(
    location: tuple[str, ...],
    items: Sequence[Mapping[str, Any]],
    layers: Sequence[Mapping[str, Any]],
    root: type[BaseModel],
    task_keys: Sequence[str],
) -> str:
    is_short = location[:2] == ("tasks", "0") and len(location) > 2 and location[2] in task_keys
    short = location[2:] if is_short else location
    key = ".".join(part if len(part) <= _MAX_SHOWN else part[:_MAX_SHOWN] + "…" for part in short)
    kinds = {item["type"] for item in items}
    end = len(location) - ("missing" in kinds)  # the place of what lacks it
    where = _find_place({location[:end], short[: end - len(location) or None]}, layers)
    start = f"  {where}: " if where else "  "
    if "extra_forbidden" in kinds:
        return f"{start}unknown key {show_value(key)}.{_near(location, root, task_keys)}"
    if "invalid_key" in kinds:
        return f"{start}the key {show_value(key)} is no text; expected the name of a setting"
    if "missing" in kinds:
        return f"{start}{key} is missing"
    said = dict.fromkeys(_words(item) for item in items)
    return f"{start}{key} = {show_value(items[0].get('input'))}: {'; or '.join(said)}"


def _words(item: Mapping[str, Any]) -> str:
    """pydantic's message without the names of our classes."""
    if item["type"] in ("model_type", "model_attributes_type", "dataclass_type"):
        return "expected a mapping of keys"
    if item["type"] in ("dict_type", "mapping_type"):
        return "expected a mapping"
    return str(item["msg"]).removeprefix("Value error, ")


def _real(merged: object, loc: Sequence[int | str], *, is_new: bool) -> tuple[str, ...]:
    """A location without the parts that name one of several types instead of a place."""
    found: list[str] = []
    inner: Any = merged
    for number, part in enumerate(loc):
        is_last = number == len(loc) - 1
        if isinstance(inner, Mapping) and (part in inner or (is_last and is_new)):
            inner = inner.get(part)
        elif isinstance(inner, list) and isinstance(part, int) and part < len(inner):
            inner = inner[part]
        elif isinstance(inner, Mapping) and (named := [k for k in inner if str(k) == part]):
            inner = inner[named[0]]  # a key that is no text: pydantic writes it as one
        else:
            continue
        found.append(str(part))
    return tuple(found)


def _find_place(spellings: set[tuple[str, ...]], layers: Sequence[Mapping[str, Any]]) -> str:
    """File and line of a key, if the last layer that sets it is a file; else ""."""
    for layer in reversed(layers):
        for location in spellings:
            if _sets(layer, location):
                return layer.place_of(location) if isinstance(layer, FileLayer) else ""
    return ""


def _sets(layer: object, location: Sequence[str]) -> bool:
    """Whether a layer holds a key, or something else where its section should be."""
    inner = layer
    for number, part in enumerate(location):
        if isinstance(inner, Mapping):
            named = [key for key in inner if str(key) == part]
            if not named:
                return False
            inner = inner[named[0]]
        elif isinstance(inner, list):
            if not part.isdecimal() or int(part) >= len(inner):
                return False
            inner = inner[int(part)]
        else:
            return number > 0
    return True


def _near(location: tuple[str, ...], root: type[BaseModel], task_keys: Sequence[str]) -> str:
    """What may have been meant by an unknown key: its home if it stands in the wrong section."""
    name = location[-1]
    top = _fields_at(root, [], task_keys)  # also what is found for a key that is no section
    sections = {section: _fields_at(root, [section], task_keys) for section in root.model_fields}
    homes = [f"{s}.{name}" for s, names in sections.items() if names != top and name in names]
    if homes:
        return f" Did you mean {' or '.join(map(repr, homes))}?"
    return suggest(name[:_MAX_SHOWN], _fields_at(root, location[:-1], task_keys))


def _fields_at(
    root: type[BaseModel], location: Sequence[str], task_keys: Sequence[str]
) -> list[str]:
    """Field names of the section at a location such as ["rollout"] or ["tasks", "0"]."""
    model = root
    for part in location:
        info = model.model_fields.get(part)
        if info is None:
            continue
        model = next(_sections_in(info.annotation), model)
    names = list(model.model_fields)
    return names + list(task_keys) if model is root else names


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)
