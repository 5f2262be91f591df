"""The configuration tree as the rows that docs/configuration.md must hold: key, type, default.

Read by tests/test_docs.py. Types are described in words a reader of YAML knows.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from searchrl.config import RunConfig
from searchrl.sections import Named, RewardStage, Section, SftStage

_WORDS = {int: "integer", float: "number", str: "text", bool: "true or false", Named: "name"}
_SIGNS = ((Ge, "ge", "≥"), (Gt, "gt", ">"), (Le, "le", "≤"), (Lt, "lt", "<"))


class ConfigRow(NamedTuple):
    """One key. `section` is the prefix of its key, or `run` at the top."""

    section: str
    key: str
    type: str
    default: str


def config_rows() -> list[ConfigRow]:
    """All keys, in the order of the classes."""
    return list(_rows(RunConfig, ""))


def _rows(section: type[Section], prefix: str) -> Iterator[ConfigRow]:
    for name, field in section.model_fields.items():
        key = f"{prefix}{name}"
        kind = describe(field.annotation, field.metadata)
        yield ConfigRow(prefix.rstrip(".") or "run", key, kind, _default(field))
        for inner, mark in _sections(field.annotation):
            yield from _rows(inner, f"{key}{mark}.")


def _sections(annotation: Any) -> Iterator[tuple[type[Section], str]]:
    """The sections inside a field: itself, or as the element of a list."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation, ""
        return
    for argument in get_args(annotation):
        mark = "[]" if get_origin(annotation) is list else ""
        yield from ((inner, mark or deeper) for inner, deeper in _sections(argument))


def describe(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    """A type and its bounds in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return describe(arguments[0], _flatten([*arguments[1:], *metadata]))
    if origin in (Union, types.UnionType):
        parts = [describe(part) for part in arguments if part is not type(None)]
        return " or ".join([*parts, *(["null"] if type(None) in arguments else [])])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is list:
        inner = arguments[0]
        names = {str: "texts", Named: "names", RewardStage: "stages", SftStage: "stages"}
        return f"list of {names.get(inner, 'entries')}"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "section"
    bounds = {
        sign: getattr(mark, name)
        for mark in _flatten(metadata)
        for kind, name, sign in _SIGNS
        if isinstance(mark, kind)
    }
    word = _WORDS[annotation]
    return " ".join([word, *(f"{sign} {limit}" for sign, limit in bounds.items())])


def _flatten(metadata: Any) -> list[Any]:
    """Marks, and those held in a pydantic `Field(ge=…)`."""
    return [
        mark
        for item in metadata
        for mark in (item.metadata if isinstance(item, FieldInfo) else [item])
    ]


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if field.is_required():
        return "required"
    if isinstance(value, Section) or (
        isinstance(value, list) and value and isinstance(value[0], Section)
    ):
        return "below"
    if isinstance(value, Named):
        value = value.name
    if isinstance(value, float) and value and abs(value) < 0.001:
        return f"`{value:.0e}`".replace("e-0", "e-")
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"
