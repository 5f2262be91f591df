"""Every key of the configuration in words: its type, default and reason.

The reasons are the docstrings below the fields, written as Markdown; types and bounds are read from
the JSON schema that pydantic makes of the tree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from searchrl.config.tree import TASK_KEYS, RunConfig
from searchrl.errors import UnknownNameError, suggest

_WORDS = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "object": "mapping",
    "Named": "name",
}
_LISTS = {"string": "texts", "Named": "names", "SftStage": "stages"}
_BOUNDS = {
    **{"minimum": "≥", "ge": "≥", "exclusiveMinimum": ">", "maximum": "≤"},
    "exclusiveMaximum": "<",
}


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
        plain = self.key.removeprefix("tasks[].")
        return plain if plain in TASK_KEYS else self.key.replace("[]", ".0")


def config_keys() -> list[ConfigKey]:
    """All keys, in the order of the classes."""
    schema = RunConfig.model_json_schema()
    tree = RunConfig().to_dict()
    return list(_keys(schema, schema["$defs"], tree, ""))


def find_keys(name: str) -> list[ConfigKey]:
    """The key called `name`, or all keys of the section; list numbers and short forms are fine.

    Raises `UnknownNameError` with near matches.
    """
    keys = config_keys()
    wanted = _plain(name)
    if wanted.partition(".")[0] in TASK_KEYS:
        wanted = f"tasks.{wanted}"
    matching = [key for key in keys if f"{_plain(key.key)}.".startswith(f"{wanted}.")]
    if wanted == "run":
        matching = [key for key in keys if key.section == "run"]
    if matching:
        return matching
    known = [_plain(key.key) for key in keys]
    leaves = [key for key in known if key.endswith(f".{wanted}")]
    hint = f" Did you mean {' or '.join(map(repr, leaves))}?" if leaves else suggest(wanted, known)
    raise UnknownNameError(f"unknown config key '{name}'.{hint}")


def write(value: Any) -> str:
    """A value as YAML has it on one line; small numbers as `2e-5`, a plugin as its name."""
    if isinstance(value, Mapping) and [*value] == ["name"]:
        value = value["name"]
    if isinstance(value, float) and value and abs(value) < 0.001:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _keys(
    schema: Mapping[str, Any], known: Mapping[str, Any], tree: Mapping[str, Any], prefix: str
) -> Iterator[ConfigKey]:
    """The keys of a section with the values that they have by default."""
    for name, field in schema["properties"].items():
        key, value = f"{prefix}{name}", tree[name]
        inner = known.get(_name_of(field.get("items", field)), {})
        is_section = "properties" in inner and not inner.get("additionalProperties", True)
        is_list = isinstance(value, list)
        kind, about = (
            ("section", inner) if is_section and not is_list else (_describe(field), field)
        )
        # The default alarms are a page of their own.
        default = "below" if is_section or key == "alarms.watch" else f"`{write(value)}`"
        why = " ".join(about["description"].split())
        yield ConfigKey(prefix.rstrip(".") or "run", key, kind, default, why)
        if is_section:
            below = value[0] if is_list else value
            yield from _keys(inner, known, below, f"{key}[]." if is_list else f"{key}.")


def _describe(field: Mapping[str, Any]) -> str:
    """A type and its bounds in words."""
    if "anyOf" in field:
        return " or ".join(map(_describe, field["anyOf"]))
    if choices := field.get("enum", [field["const"]] if "const" in field else []):
        return ", ".join(f"`{value}`" for value in choices)
    if (kind := _name_of(field)) == "array":
        return f"list of {_LISTS.get(_name_of(field['items']), 'entries')}"
    bounds = (f"{sign} {field[bound]:,}" for bound, sign in _BOUNDS.items() if bound in field)
    return " ".join((_WORDS[kind], *bounds))


def _name_of(field: Mapping[str, Any]) -> str:
    """The type of a field, or the name of its class."""
    return str(field.get("type") or field.get("$ref", "").rpartition("/")[2])


def _plain(key: str) -> str:
    """A key without the marks and numbers of list entries."""
    return re.sub(r"\[\]|\.\d+(?=\.|$)", "", key)
