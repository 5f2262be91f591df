"""Function calls: read from JSON, and compared with a recorded one and the schema of its tool."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from searchrl.contracts import SEARCH, Action, Episode, ToolCall

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


class Tool(NamedTuple):
    """A tool: its JSON for the prompt, and the types of its parameters, where they are known."""

    name: str
    text: str
    types: Mapping[str, tuple[type, ...] | None]
    required: Sequence[str]


def load_json(text: str) -> Any:
    """The value of strict JSON that can be written again; ValueError if it is none."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def call_of(action: Action) -> ToolCall | None:
    """The call of a turn. A tool may be named `search`, which protocols read as a search."""
    if action.kind == SEARCH:
        several = len(action.queries) > 1
        said = {"queries": [*action.queries]} if several else {"query": "".join(action.queries)}
        return ToolCall(SEARCH, said)
    return action.payload if isinstance(action.payload, ToolCall) else None


def read_call(text: str) -> ToolCall | None:
    """The call in an answer, bare or in a fence; None for other JSON. ValueError: no JSON."""
    fenced = _FENCED.fullmatch(text.strip())
    match load_json(fenced[1] if fenced else text):
        case {"name": str(name), "arguments": dict(arguments), **others} if not others:
            return ToolCall(name, arguments)
    return None


def call_facts(episode: Episode) -> dict[str, float]:
    """What is right (1) or not (0) about the first call, or about an answer that is one."""
    calls = (call_of(turn.action) for turn in episode.turns)
    call, answer = next(filter(None, calls), None), episode.final_answer or ""
    if call is None and "{" not in answer:
        return {"missing": 1.0}
    try:
        call = call or read_call(answer)
    except ValueError:
        return {"broken": 1.0}
    facts = {"json": 1.0, "call": float(call is not None)}
    if call is None:
        return facts
    recorded: ToolCall = episode.task.meta["call"]
    tools = {tool.name: tool for tool in episode.task.meta["tools"]}
    is_known = call.name in (tools or [recorded.name])
    facts |= {"known": float(is_known), "unknown": float(not is_known)}
    if is_known:
        tool = tools.get(call.name, Tool("", "", {}, ()))
        facts["required"] = _share([name in call.arguments for name in tool.required])
        kinds = [(value, tool.types.get(name, ())) for name, value in call.arguments.items()]
        fits = [types is None or type(value) in types for value, types in kinds]
        facts["types"] = _share(fits if tool.types else [])
    if call.name == recorded.name:
        given, wanted = ({*map(_write, one.arguments.items())} for one in (call, recorded))
        facts |= {"name": 1.0, "same": float(given == wanted)}
        facts["values"] = len(given & wanted) / max(1, len(given | wanted)) if wanted else 1.0
    return facts


def _write(pair: tuple[str, Any]) -> str:
    return json.dumps(pair, sort_keys=True)


def _share(found: Sequence[bool]) -> float:
    """Of nothing, all is right."""
    return sum(found) / len(found) if found else 1.0
