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
from searchrl.contracts import ToolCall
from searchrl.data import BadRow, Row
from searchrl_tasks.calls import load_json
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
    tools: Sequence[Mapping[str, Any]]
    call: ToolCall | None = None
    response: str = ""


def parse_example(row: Row, name: str = "row") -> Example:
    """The example of a row of any shape; `BadRow` says why there is none."""
    value = load_json(dict(row.value))
    system, tools = _read_system(value)
    messages = _read_messages(value)
    shown = [system, *(one.text for one in messages if one.role == "system")]
    messages = [one for one in messages if one.role != "system"]
    called = [at for at, one in enumerate(messages) if one.call]
    answered = [at for at, one in enumerate(messages) if one.role == "assistant" and one.text]
    at = called[0] if called else answered[-1] if answered else 0
    before, after, answer, response = messages[:at], messages[at + 1 : at + 3], "", ""
    while before and before[-1].role != "user":
        before.pop()
    if not before or not before[-1].text:
        raise BadRow("has no answer of an assistant to a question of a user")
    question = before.pop().text
    if not called:
        answer = messages[at].text
    elif after and after[0].role == "tool":
        response = after[0].text
        answer = "".join(one.text for one in after[1:] if one.role == "assistant" and not one.call)
    is_code = ("```" in answer or "instruction" in value) and parse_code(find_code(answer))
    named = value.get("kind") if value.get("kind") in (CHAT, CODE) else None
    kind = CALL if called else named or (CODE if is_code else CHAT)
    shown += [json.dumps(tool, ensure_ascii=False) for tool in tools]
    shown += [f"{one.role}: {one.text}" for one in before]
    shown.append(f"user: {question}" if before else question)
    prompt = "\n".join(filter(None, shown))
    identity = f"{name}-{row.number}"
    return Example(identity, kind, prompt, question, answer, tools, messages[at].call, response)


def split_examples(examples: Sequence[Example]) -> dict[str, list[Example]]:
    """A tenth each for validation and test, chosen and ordered by a hash of the prompt."""
    by_prompt: dict[bytes, list[Example]] = {}
    for one in examples:
        words = " ".join(one.prompt.casefold().split())
        by_prompt.setdefault(sha256(words.encode()).digest(), []).append(one)
    ordered = sorted(by_prompt)
    held = max(1, len(ordered) // 10) if len(ordered) > 2 else 0
    keys = {"train": ordered[2 * held :], "validation": ordered[held : 2 * held]}
    keys["test"] = ordered[:held]
    return {name: [one for key in own for one in by_prompt[key]] for name, own in keys.items()}


def _read_messages(value: Mapping[str, Any]) -> list[Message]:
    match value:
        case {"conversations": [*said]} | {"messages": [*said]}:
            return [_read_message(one) for one in said]
        case {"instruction": str(asked), "output": str(answer)}:
            asked = f"{asked}\n\n{value.get('input') or ''}"
            return [Message("user", asked.strip()), _message("assistant", answer)]
        case {"chat": str(text)}:
            parts = _GLAIVE.split(text.replace("<|endoftext|>", ""))[1:]
            return [_message(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        case {"text": str(text)} if parts := _CHATML.findall(text):
            return [_message(*pair) for pair in parts]
    raise BadRow(f"has no known shape, only {show_value([*value])}; expected {SHAPES}")


def _read_message(one: Any) -> Message:
    match one:
        case {"role": str(who), "tool_calls": [call, *_]}:
            return _message(who, "", call)
        case {"from": str(who), "value": str(text)} | {"role": str(who), "content": str(text)}:
            return _message(who, text)
    raise BadRow(f"has a message without a role and a text: {show_value(one)}")


def _message(who: str, text: str, call: Any = None) -> Message:
    role = _ROLES.get(who.lower(), who.lower())
    if role not in ("system", "user", "assistant", "tool"):
        raise BadRow(f"has a message of {show_value(who)}; expected user, assistant, system, tool")
    if written := _CALL.search(text) if role == "assistant" else None:
        call = "".join(filter(None, written.groups())).strip()
    return Message(role, text.strip(), None if call is None else _read_call(call))


def _read_call(call: Any) -> ToolCall:
    """The call in a text or an object; glaive writes its arguments in single quotes."""
    if isinstance(call, str):
        quoted = _QUOTED.fullmatch(call)
        call = load_json(quoted[1] + quoted[2].replace("\\'", "'") + "}" if quoted else call)
    match call.get("function", call) if isinstance(call, dict) else None:
        case {"name": str(name), "arguments": str() | dict() as given} if name.strip():
            if isinstance(given := load_json(given), dict):
                return ToolCall(name, given)
    raise BadRow(f"has a call that is not a name and arguments: {show_value(call)}")


def _read_system(value: Mapping[str, Any]) -> tuple[str, list[Mapping[str, Any]]]:
    """The system message beside the others, and the tools; glaive lists these behind it."""
    system = str(value.get("system") or value.get("system_prompt") or "")
    tools = value.get("tools") or []
    if "chat" in value:
        system, brace, rest = system.strip().removeprefix("SYSTEM:").partition("{")
        # One JSON object after the other.
        tools = re.sub(r"}\s*{", "},{", f"[{brace}{rest}]")
    try:
        tools = load_json(tools)
        functions = [tool.get("function", tool) for tool in tools]
        names = [tool["name"] for tool in functions]
    except (AttributeError, KeyError, TypeError):
        names = [None]
    if not all(isinstance(name, str) for name in names):
        raise BadRow(f"'tools' are no list of objects with a name: {show_value(tools)}")
    return system.strip(), functions
