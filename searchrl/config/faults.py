"""Faults of a configuration in lines for a person: the key, the value, file and line.

pydantic finds the faults; its names of types and of the parts of a union are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from searchrl.errors import show_value, suggest

_MAX_LINES = 20
"""Faults that are listed; the others are counted."""
_ABSENT = object()


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
    known: Sequence[str],
) -> str:
    """All faults of a merged configuration, one line each, as far as there is room.

    `layers` are what was merged, later wins; `known` are all keys, as `sft.stages.0.lr`, and the
    short forms.
    """
    faults: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for item in error.errors(include_url=False, include_context=False):
        faults.setdefault(_location(merged, item), []).append(dict(item))
    # Of a value that may be a text or a list, only what is wrong inside the list is of use.
    holders = {key[:end] for key in faults for end in range(len(key))}
    shown = [(key, items) for key, items in faults.items() if key not in holders]
    lines = [_explain_one(key, items, layers, known) for key, items in shown[:_MAX_LINES]]
    if len(shown) > _MAX_LINES:
        lines.append(f"  … and {len(shown) - _MAX_LINES} more; fix these first")
    return "\n".join(lines)


def _location(merged: object, item: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys to a fault, without the parts that name one of several types instead of a place."""
    keys: list[str] = []
    inner = merged
    for part in item["loc"]:
        below = _below(inner, str(part))
        is_new = part == item["loc"][-1] and item["type"] in ("missing", "extra_forbidden")
        if below is not _ABSENT or is_new:
            keys.append(str(part))
            inner = below
    return tuple(keys)


def _below(inner: object, part: str) -> object:
    if isinstance(inner, list):
        inner = dict(enumerate(inner))
    if not isinstance(inner, Mapping):
        return _ABSENT
    return next((value for key, value in inner.items() if str(key) == part), _ABSENT)


def _explain_one(
    location: tuple[str, ...],
    items: Sequence[Mapping[str, Any]],
    layers: Sequence[Mapping[str, Any]],
    known: Sequence[str],
) -> str:
    is_short = location[:2] == ("tasks", "0") and location[2:3] and location[2] in known
    short = location[2:] if is_short else location
    key = ".".join(part[:60] for part in short)
    kinds = {item["type"] for item in items}
    holders = (short[:-1], location[:-1]) if "missing" in kinds else (short, location)
    start = f"  {_find_place(holders, layers)}"
    if "extra_forbidden" in kinds:
        return f"{start}unknown key {show_value(key)}.{_near(location, known)}"
    if "invalid_key" in kinds:
        return f"{start}the key {show_value(key)} is no text; expected the name of a setting"
    if "missing" in kinds:
        return f"{start}{key} is missing"
    texts = dict.fromkeys(_words(item) for item in items)
    if "secret" in kinds:
        return f"{start}{key}: {'; or '.join(texts)}"
    return f"{start}{key} = {show_value(items[0].get('input'))}: {'; or '.join(texts)}"


def _words(item: Mapping[str, Any]) -> str:
    """pydantic's message without the names of our classes."""
    if item["type"] in ("model_type", "model_attributes_type", "dataclass_type"):
        return "expected a mapping of keys"
    if item["type"] in ("dict_type", "mapping_type"):
        return "expected a mapping"
    return str(item["msg"]).removeprefix("Value error, ")


def _find_place(locations: Sequence[Sequence[str]], layers: Sequence[Mapping[str, Any]]) -> str:
    """File and line of a key, if the last layer that sets it is a file; else ""."""
    for layer in reversed(layers):
        for location in locations:
            if location and reduce(_below, location, layer) is not _ABSENT:
                return f"{layer.place_of(location)}: " if isinstance(layer, FileLayer) else ""
    return ""


def _near(location: tuple[str, ...], known: Sequence[str]) -> str:
    """Suggest a key for an unknown one: its home if it stands in the wrong section."""
    name = location[-1]
    *above, _ = ("0" if part.isdecimal() else part for part in location)
    homes = [key for key in known if key.endswith(f".{name}") and ".0." not in key]
    if homes:
        return f" Did you mean {' or '.join(map(repr, homes))}?"
    start = "".join(f"{part}." for part in above)
    siblings = [key.removeprefix(start) for key in known if key.startswith(start)]
    return suggest(name[:60], [one for one in siblings if "." not in one])
