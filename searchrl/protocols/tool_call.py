"""Tool calls in the format that models were trained on: `<tool_call>{json}</tool_call>`.

Qwen3, Qwen2.5 and Hermes models know it from their chat templates. A final answer is written in
`<answer>`, which is not part of it: there a message without a call is the answer. Ours must differ
from a turn that was cut off, end at a stop string, and be the only one of the episode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from searchrl.core.encoding import make_encodable
from searchrl.core.episode import ANSWER, INVALID, SEARCH, TOOL, Action, ToolCall
from searchrl.errors import ConfigError
from searchrl.protocols.inline import (
    ANSWER_THOUGHT,
    FIRST_THOUGHT,
    INSTRUCTIONS,
    InlineProtocol,
    invalid,
    load_instruction,
)
from searchrl.protocols.tags import Tags
from searchrl.protocols.wrapping import Wrapping

CALL_THOUGHT = "I should use a tool."
"""The thought with which a forced call begins."""

MAX_DEPTH = 32
"""Levels of lists and objects that a call may nest, so that later readers can recurse safely."""

_OPENING = re.compile(r"<tool_call>\s*")
_CLOSING = re.compile(r"\s*</tool_call>")
_DECODER = json.JSONDecoder()


class ToolCallProtocol(InlineProtocol):
    """Protocol `tool-call`; implements `contracts.TagProtocol`.

    A call of `search` with `{"query": text}` or `{"queries": [text, …]}` parses to a search. Any
    other call parses to an action of kind `tool` with a `ToolCall`, also of an unknown tool, which
    the environment then refuses. The tags are those of the models' templates and cannot be changed.

    Args:
        tools: the tools in the instruction: `{"name", "description", "parameters"}` each, the last
            a JSON schema. None: those of the environment, or a search.
        instruction: replaces the default one; `{tools}` in it is replaced by the list of tools;
            `@path` reads it from a UTF-8 file.

    >>> call = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    >>> ToolCallProtocol().parse(call).payload
    ToolCall(name='add', arguments={'a': 1, 'b': 2})
    """

    request = "tool call"
    example = '{"name": ..., "arguments": {...}}'
    replier = "the environment"

    def __init__(
        self,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        instruction: str | None = None,
    ) -> None:
        tags = Tags("think", "tool_call", "tool_response", "answer")
        wrapping = Wrapping("tool_response", "\n<tool_response>\n", "\n</tool_response>\n")
        super().__init__("tool-call", tags, wrapping=wrapping, foreign=["tools"])
        self.tools = _ensure_tools([load_search_tool()] if tools is None else tools)
        text = load_instruction(instruction, self.name)
        listed = (
            json.dumps({"type": "function", "function": tool}, ensure_ascii=False)
            for tool in self.tools
        )
        self.instruction = text.replace("{tools}", "\n".join(listed))

    def read_request(self, text: str) -> Action:
        """Return a search, a `ToolCall`, or an invalid action with the reason."""
        try:
            call = _ensure_call(read_json(text))
        except ValueError as error:
            return invalid(str(error))
        is_search = call.name == SEARCH
        if is_search and load_search_tool() not in self.tools:  # one that may take other arguments
            is_search = call.arguments.keys() <= {"query", "queries"}
        return _read_search(call.arguments) if is_search else Action(TOOL, call)

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the turn that parses to `action`, in the layout of the models' templates."""
        think = f"<think>\n{self.neutralise(thought)}\n</think>"
        if action.kind == INVALID:
            return think
        if action.kind == ANSWER:
            return f"{think}\n\n<answer> {self.neutralise(str(action.payload))} </answer>"
        if action.kind == SEARCH:
            several: dict[str, Any] = {"queries": list(action.queries)}
            one = len(action.queries) == 1
            call = ToolCall(SEARCH, {"query": action.queries[0]} if one else several)
        elif action.kind == TOOL and isinstance(action.payload, ToolCall):
            call = action.payload
        else:
            raise ValueError(
                f"{self.name} writes search, answer and invalid turns and the ToolCall of a tool "
                f"turn, not {action.kind} with {action.payload!r}"
            )
        return f"{think}\n\n<tool_call>\n{self._write(call)}\n</tool_call>"

    def opening(self, kind: str) -> str:
        """Text that commits a turn to a `search`, `tool` or `answer`; ValueError if none."""
        names = [tool["name"] for tool in self.tools]
        if kind == ANSWER:
            return f"<think>\n{ANSWER_THOUGHT}\n</think>\n\n<answer>"
        if kind == SEARCH and SEARCH in names:
            start = '<tool_call>\n{"name": "search", "arguments": {"query": "'
            return f"<think>\n{FIRST_THOUGHT}\n</think>\n\n{start}"
        if kind == TOOL and set(names) - {SEARCH}:
            return f'<think>\n{CALL_THOUGHT}\n</think>\n\n<tool_call>\n{{"name": "'
        raise ValueError(
            f"{self.name} cannot open {kind!r} with the tools {', '.join(names) or '(none)'}"
        )

    def _write(self, call: ToolCall) -> str:
        try:
            text = json.dumps(
                {"name": call.name, "arguments": call.arguments},
                ensure_ascii=False,
                allow_nan=False,
            )
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"the call of {call.name!r} is not JSON: {error}") from error
        # "<" occurs in strings only, where JSON allows an escape.
        return self._foreign_tag.sub(lambda tag: "\\u003c" + tag.group()[1:], make_encodable(text))


@cache
def load_search_tool() -> dict[str, Any]:
    """The tool in the default list."""
    tool: dict[str, Any] = json.loads((INSTRUCTIONS / "search_tool.json").read_bytes())
    return tool


def _read_search(arguments: Mapping[str, Any]) -> Action:
    queries = arguments.get("queries", [arguments.get("query")])
    is_list = isinstance(queries, list) and all(isinstance(query, str) for query in queries)
    if len(arguments) != 1 or not is_list:
        return invalid('The tool search takes {"query": "..."} or {"queries": ["...", ...]}.')
    words = tuple(query.strip() for query in queries if query.strip())
    return Action(SEARCH, words) if words else invalid("The search has no words to search for.")


def read_json(text: str) -> Any:
    """Parse a JSON text of a model into a value that any other JSON reader takes.

    Raises:
        ValueError: it is not strict JSON, nests more than `MAX_DEPTH` levels, or holds a number
            or half of a surrogate pair that other readers refuse.
    """
    value, end = _scan(text, 0)
    if text[end:].strip():
        raise ValueError(f"The tool call is not valid JSON: Extra data (char {end}).")
    return value


def read_calls(text: str) -> tuple[list[ToolCall], str]:
    """The calls in the `<tool_call>` blocks of a message, and the text around them.

    A tag inside a JSON string is part of the string.

    Raises:
        ValueError: one of them is not a call; says why.

    >>> read_calls('So: <tool_call>{"name": "add", "arguments": {"a": "</tool_call>"}}</tool_call>')
    ([ToolCall(name='add', arguments={'a': '</tool_call>'})], 'So: ')
    """
    calls: list[ToolCall] = []
    around, at = "", 0
    while opening := _OPENING.search(text, at):
        value, end = _scan(text, opening.end())
        closing = _CLOSING.match(text, end)
        if closing is None:
            raise ValueError("The tool call is not closed with </tool_call>.")
        calls.append(_ensure_call(value))
        around, at = around + text[at : opening.start()], closing.end()
    return calls, around + text[at:]


def _scan(text: str, at: int) -> tuple[Any, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
        if _depth(value) > MAX_DEPTH:
            raise RecursionError
        # Infinite numbers, and halves of surrogate pairs, which JSON can escape: no file has them.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except RecursionError:
        why = f"The tool call is nested too deeply: {MAX_DEPTH} levels at most."
        raise ValueError(why) from None
    except ValueError as error:
        raise ValueError(f"The tool call is not valid JSON: {error}.") from None
    return value, end


def _ensure_call(value: Any) -> ToolCall:
    match value:
        case {"name": str(name), "arguments": dict(arguments), **others}:
            if name.strip() and not others:
                return ToolCall(name, arguments)
    text = json.dumps(value, ensure_ascii=False)
    raise ValueError(
        'A tool call is one JSON object {"name": "...", "arguments": {...}} and nothing else, not '
        f"{text if len(text) <= 60 else f'{text[:60]}…'}."
    )


def _depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


class _Tool(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    name: Annotated[str, Field(pattern=r"\S")]
    description: NotRequired[str]
    parameters: NotRequired[dict[str, JsonValue]]


def _ensure_tools(tools: object) -> tuple[dict[str, Any], ...]:
    try:
        made = TypeAdapter(list[_Tool]).validate_python(tools)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, ("protocol.tools", *first["loc"])))
        raise ConfigError(f"{place}: {first['msg']}") from error
    names = [tool["name"] for tool in made]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"protocol.tools: two of them have the name {twice[0]!r}")
    return tuple(map(dict, made))
