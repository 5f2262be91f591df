"""Rows of conversations, of every shape that is read, as examples: what is asked and answered.

A row gives one example: the first function call in it, or else its last answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from searchrl import show_value
from searchrl.contracts import ToolCall, make_encodable
from searchrl.data import BadRow, Row
from searchrl_tasks.calls import TYPES, Tool, load_json
from searchrl_tasks.code import find_code, parse_code

CHAT, CODE, CALL = "chat", "code", "function_call"
KINDS = (CHAT, CODE, CALL)
SHAPES = (
    '{"conversations": [{"from", "value"}]}, {"messages": [{"role", "content"}]}, '
    '{"instruction", "output"}, {"system", "chat"} of glaive, or {"text"} of ChatML'
)
_ROLES = {"human": "user", "gpt": "assistant", "function response": "tool", "function": "tool"}
_GLAIVE = re.compile(r"^(USER|ASSISTANT|FUNCTION RESPONSE):", re.MULTILINE)
_CHATML = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)
_CALL = re.compile(r"<functioncall>(.*?)(?:</functioncall>|\Z)|<tool_call>(.*?)</tool_call>", re.S)
_QUOTED = re.compile(r"""(\{\s*"name":\s*"[^"]*",\s*"arguments":\s*)'(.*)'\s*\}""", re.DOTALL)


class Message(NamedTuple):
    """One message. `role` is system, user, assistant or tool."""

    role: str
    text: str
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A question with what came before it and what was answered.

    With a `call`, that comes first, then its `response`, then the `answer`; both may be empty.
    """

    id: str
    kind: str
    prompt: str
    question: str
    answer: str
    tools: tuple[Tool, ...]
    call: ToolCall | None = None
    response: str = ""


def parse_example(row: Row, name: str = "row") -> Example:
    """The example of a row of any shape; `BadRow` says why there is none."""
    value = row.value
    system, listed = _read_system(value)
    messages = _read_messages(value)
    system = "\n".join([system, *(one.text for one in messages if one.role == "system")]).strip()
    said = [one for one in messages if one.role != "system"]
    called = [at for at, one in enumerate(said) if one.call]
    answered = [at for at, one in enumerate(said) if one.role == "assistant" and one.text]
    at = called[0] if called else answered[-1] if answered else 0
    before = said[:at]
    while before and before[-1].role != "user":
        before.pop()
    if not before or not before[-1].text:
        raise BadRow("has no answer of an assistant to a question of a user")
    question, answer, response = before.pop().text, said[at].text, ""
    if called:
        after = [*said[at + 1 : at + 3], Message("", ""), Message("", "")]
        response = after[0].text if after[0].role == "tool" else ""
        answer = after[1].text if response and after[1].role == "assistant" else ""
    is_code = ("```" in answer or "instruction" in value) and parse_code(find_code(answer))
    kind = CALL if called else value.get("kind") or (CODE if is_code else CHAT)
    if kind not in KINDS or (kind == CALL and not called):
        raise BadRow(f"'kind' is {show_value(kind)}; expected chat, code, or function_call")
    tools = tuple(map(_read_tool, listed))
    shown = [f"{one.role}: {one.text}" for one in before]
    shown.append(f"user: {question}" if before else question)
    prompt = "\n".join(filter(None, [system, *(tool.text for tool in tools), *shown]))
    identity = f"{name}-{row.number}"
    return Example(identity, kind, prompt, question, answer, tools, said[at].call, response)


def split_examples(examples: Sequence[Example]) -> dict[str, list[Example]]:
    """A tenth each for validation and test, chosen and ordered by a hash of the prompt."""
    asked: dict[bytes, list[Example]] = {}
    for one in examples:
        words = " ".join(one.prompt.casefold().split())
        asked.setdefault(sha256(words.encode()).digest(), []).append(one)
    ordered = sorted(asked)
    held = max(1, len(ordered) // 10) if len(ordered) > 2 else 0
    keys = {"train": ordered[2 * held :], "validation": ordered[held : 2 * held]}
    keys["test"] = ordered[:held]
    return {name: [one for key in own for one in asked[key]] for name, own in keys.items()}


def _read_messages(value: Mapping[str, Any]) -> list[Message]:
    match value:
        case {"conversations": [*said]} | {"messages": [*said]}:
            return [_read_message(one) for one in said]
        case {"instruction": str(asked), "output": str(answer)}:
            asked = f"{asked}\n\n{value.get('input') or ''}"
            return [_message("user", asked), _message("assistant", answer)]
        case {"chat": str(text)}:
            parts = _GLAIVE.split(text.replace("<|endoftext|>", ""))[1:]
            return [_message(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        case {"text": str(text)} if parts := _CHATML.findall(text):
            return [_message(*pair) for pair in parts]
    raise BadRow(f"has no known shape, only {show_value([*value])}; expected {SHAPES}")


def _read_message(one: Any) -> Message:
    match one:
        case {"from": str(who), "value": str(text)} | {"role": str(who), "content": str(text)}:
            calls = one.get("tool_calls")
        case {"role": str(who), "tool_calls": calls}:
            text = ""
        case _:
            raise BadRow(f"has a message without a role and a text: {show_value(one)}")
    return _message(who, text, calls if isinstance(calls, list) else [])


def _message(who: str, text: str, calls: Sequence[Any] = ()) -> Message:
    role, text = _ROLES.get(who.lower(), who.lower()), make_encodable(text).strip()
    if role not in ("system", "user", "assistant", "tool"):
        raise BadRow(f"has a message of {show_value(who)}; expected user, assistant, system, tool")
    if role != "assistant":
        return Message(role, text)
    said = calls[0] if calls else next(iter(_CALL.findall(text)), None)
    said = "".join(said).strip() if isinstance(said, tuple) else said
    return Message(role, text, None if said is None else _read_call(said))


def _read_call(said: Any) -> ToolCall:
    """The call in a text or an object; glaive writes its arguments in single quotes."""
    value = said
    if isinstance(said, str):
        quoted = _QUOTED.fullmatch(said)
        value = _json(quoted[1] + quoted[2].replace("\\'", "'") + "}" if quoted else said)
    match value:
        case {"function": dict(own)}:
            value = own
    match value:
        case {"name": str(name), "arguments": dict() | str() | None as given} if name.strip():
            given = _json(given if isinstance(given, str) else json.dumps(given or {}))
            if isinstance(given, dict):
                return ToolCall(make_encodable(name), given)
    raise BadRow(f"has a call that is not a name and arguments: {show_value(said)}")


def _read_system(value: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The system message beside the others, and the tools; glaive lists these behind it."""
    system = value.get("system") or value.get("system_prompt") or ""
    tools = value.get("tools") or []
    tools = _json(tools) if isinstance(tools, str) else tools
    if not isinstance(system, str) or not isinstance(tools, list):
        raise BadRow(f"'system' or 'tools' is no text or list: {show_value([system, tools])}")
    system = make_encodable(system).strip().removeprefix("SYSTEM:")
    at = system.find("{") if "chat" in value else -1
    text = system[:at] if at >= 0 else system
    while at >= 0:
        try:
            tool, end = json.JSONDecoder().raw_decode(system, at)
        except (ValueError, RecursionError):
            raise BadRow(f"lists a tool that is not JSON: {show_value(system[at:])}") from None
        tools, at = [*tools, tool], system.find("{", end)
    return text.strip(), tools


def _read_tool(said: Any) -> Tool:
    match said:
        case {"function": dict(own)} | own:
            pass
    schema = (own.get("parameters") or {}) if isinstance(own, dict) else None
    known = (schema.get("properties") or {}) if isinstance(schema, dict) else None
    if not isinstance(known, dict) or not isinstance(own.get("name"), str):
        raise BadRow(f"lists a tool without a name or a JSON schema: {show_value(said)}")
    types = {}
    for name, one in known.items():
        kind = one.get("type") if isinstance(one, dict) else None
        types[name] = TYPES.get(kind) if isinstance(kind, str) else None
    required = schema.get("required")
    needed = [name for name in required if name in types] if isinstance(required, list) else []
    text = make_encodable(json.dumps(own, ensure_ascii=False))
    return Tool(own["name"], text, types, needed)


def _json(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError:
        raise BadRow(f"has a call or tools that are not JSON: {show_value(text)}") from None
