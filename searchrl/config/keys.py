"""Every key of the configuration in words: its type, default and reason.

`searchrl config` prints it, and the site's page of settings is made of it. The reasons are the
docstrings below the fields in `sections.py` and `tree.py`, written as Markdown.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from searchrl.config.sections import Named, Section
from searchrl.config.sft import SftStage
from searchrl.config.tree import TASK_KEYS, RunConfig
from searchrl.errors import UnknownNameError, suggest

_WORDS = {int: "integer", float: "number", str: "text", bool: "true or false", Named: "name"}
_SIGNS = ((Ge, "ge", "≥"), (Gt, "gt", ">"), (Le, "le", "≤"), (Lt, "lt", "<"))


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `section` is the prefix of `key`, or `run` at the top; `[]` marks a list's entries.

    `type` and `default` are words for people; `why` is Markdown.
    """

    section: str
    key: str
    type: str
    default: str
    why: str

    @property
    def path(self) -> str:
        """The key as `--set` takes it: short forms, and the first entry of a list."""
        own = self.key.removeprefix("tasks[].")
        return own if own in TASK_KEYS else self.key.replace("[]", ".0")


def config_keys() -> list[ConfigKey]:
    """All keys, in the order of the classes."""
    return list(_keys(RunConfig, ""))


def find_keys(name: str) -> list[ConfigKey]:
    """The key called `name`, or all keys of the section; list numbers and short forms are fine.

    Raises `UnknownNameError` with near matches.
    """
    keys = config_keys()
    wanted = _plain(name)
    if wanted.partition(".")[0] in TASK_KEYS:
        wanted = f"tasks.{wanted}"
    found = [key for key in keys if f"{_plain(key.key)}.".startswith(f"{wanted}.")]
    if wanted == "run":
        found = [key for key in keys if key.section == "run"]
    if found:
        return found
    known = [_plain(key.key) for key in keys]
    leaves = [key for key in known if key.endswith(f".{wanted}")]
    hint = f" Did you mean {' or '.join(map(repr, leaves))}?" if leaves else suggest(wanted, known)
    raise UnknownNameError(f"unknown config key '{name}'.{hint}")


def write(value: Any) -> str:
    """A value as YAML has it on one line; small numbers as `2e-5`."""
    if isinstance(value, Named):
        value = value.name
    if isinstance(value, float) and value and abs(value) < 0.001:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _keys(section: type[Section], prefix: str) -> Iterator[ConfigKey]:
    for name, field in section.model_fields.items():
        key = f"{prefix}{name}"
        inner = list(_sections(field.annotation))
        why = " ".join((field.description or "").split())
        is_section = bool(inner) and not inner[0][1]
        yield ConfigKey(
            prefix.rstrip(".") or "run",
            key,
            describe(field.annotation, field.metadata),
            _default(field),
            " ".join((inner[0][0].__doc__ or "").split()) if is_section else why,
        )
        for one, mark in inner:
            yield from _keys(one, f"{key}{mark}.")


def _sections(annotation: Any) -> Iterator[tuple[type[Section], str]]:
    """The sections inside a field: itself, or as the element of a list."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation, ""
        return
    for argument in get_args(annotation):
        mark = "[]" if get_origin(annotation) is list else ""
        yield from ((inner, mark or deeper) for inner, deeper in _sections(argument))


def describe(annotation: Any, metadata: Sequence[Any] = ()) -> str:
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
        names = {str: "texts", Named: "names", SftStage: "stages"}
        part = get_args(arguments[0])[0] if get_origin(arguments[0]) is Annotated else arguments[0]
        return f"list of {names.get(part, 'entries')}"
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
    return " ".join([_WORDS[annotation], *(f"{sign} {limit:,}" for sign, limit in bounds.items())])


def _flatten(metadata: Any) -> list[Any]:
    """Marks, and those held in a pydantic `Field(ge=…)`."""
    return [
        mark
        for item in metadata
        for mark in (item.metadata if isinstance(item, FieldInfo) else [item])
    ]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    inner = [*value.values()] if isinstance(value, dict) else value
    first = inner[0] if isinstance(inner, list) and inner else inner
    is_below = isinstance(first, BaseModel) and not isinstance(value, Named)
    return "below" if is_below else f"`{write(value)}`"


def _plain(key: str) -> str:
    """A key without the marks and numbers of list entries."""
    return re.sub(r"\[\]|\.\d+(?=\.|$)", "", key)
