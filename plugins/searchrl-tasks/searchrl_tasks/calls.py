"""Function calls: read from JSON, and compared with a recorded one and the schema of its tool."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from searchrl import show_value
from searchrl.contracts import Episode, ToolCall, make_encodable
from searchrl.data import BadRow
from searchrl.protocols import read_json

TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
"""The types of JSON schema that are checked; any other fits every value."""
_FENCED = re.compile(r"```\w*\s*(.*?)\s*```", re.DOTALL)


def load_json(raw: object) -> Any:
    """The JSON value of a text, or of what can be written as JSON; BadRow if there is none.

    NaN becomes null, half a surrogate pair the sign for what could not be read.
    """
    try:
        text = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, default=str)
        value = json.loads(make_encodable(text), parse_constant=lambda _: None)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise BadRow(f"holds something that is not JSON: {show_value(raw)}") from None
    return value


def read_call(text: str) -> ToolCall | None:
    """The call that an answer is, bare or in a fence, as JSON; None if it is anything else."""
    fenced = _FENCED.fullmatch(text.strip())
    try:
        match read_json(fenced[1] if fenced else text.strip()):
            case {"name": str(name), "arguments": dict(arguments), **others} if not others:
                return ToolCall(name, arguments)
    except ValueError:
        pass
    return None


def call_facts(episode: Episode) -> Mapping[str, float]:
    """Facts, right (1) or not (0), about the first call, or about an answer that is one."""
    answer = episode.final_answer or ""
    made = [turn.action.payload for turn in episode.turns]
    calls = [call for call in [*made, read_call(answer)] if isinstance(call, ToolCall)]
    if not calls:
        return {"broken" if "{" in answer else "missing": 1.0}
    call, recorded, facts = calls[0], episode.task.meta["call"], {"json": 1.0}
    schemas = {tool["name"]: tool.get("parameters") for tool in episode.task.meta["tools"]}
    if call.name in (schemas or [recorded.name]):
        facts |= {"known": 1.0, "required": 1.0, "types": 1.0}
        match schemas.get(call.name):
            case {"properties": dict(known), **others}:
                required = others.get("required")
                needed = required if isinstance(required, list) else []
                facts["required"] = _share([str(key) in call.arguments for key in needed])
                facts["types"] = _share([_fits(*pair, known) for pair in call.arguments.items()])
    else:
        facts["unknown"] = 1.0
    if call.name == recorded.name:
        given, wanted = (
            {json.dumps(pair, sort_keys=True) for pair in one.arguments.items()}
            for one in (call, recorded)
        )
        facts |= {"name": 1.0, "same": float(given == wanted)}
        facts["values"] = _share([pair in given & wanted for pair in given | wanted])
    return facts


def _fits(key: str, value: Any, known: Mapping[str, Any]) -> bool:
    """True for an argument that is known, and of its type where that is one of `TYPES`."""
    schema = known.get(key)
    kind = schema.get("type") if isinstance(schema, dict) else None
    return key in known and (str(kind) not in TYPES or type(value) in TYPES[str(kind)])


def _share(facts: Sequence[bool]) -> float:
    """The share of True; 1 of nothing."""
    return sum(facts) / len(facts) if facts else 1.0
