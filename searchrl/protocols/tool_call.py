"""Tool calls in the format that models were trained on: `<tool_call>{json}</tool_call>`.

Owns the list of the tools in the instruction, the reading of a call and how turns are written. What
it shares with other protocols (reading a turn, the verdict, observations) is in `inline`. Qwen3,
Qwen2.5 and Hermes models know this format from their chat templates. A call of the tool `search` is
a search, so that every search environment works with it. What other tools do is decided by the
environment.

A final answer is written in `<answer>`, which is not part of the models' format: there a message
without a call is the answer. We need more: an answer must differ from a turn that was cut off, must
end at a stop string, and must be the only one of the episode. So rewards mean the same under every
protocol.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from typing_extensions import TypedDict

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


class ToolCallProtocol(InlineProtocol):
    """Protocol `tool-call`; implements `contracts.TagProtocol`.

    A call of `search` with `{"query": text}` or `{"queries": [text, …]}` parses to a search. Any
    other call parses to an action of kind `tool` whose payload is a `ToolCall`, also if the tool is
    not listed: the environment says that it has no such tool. The tags are those of the models'
    templates and cannot be changed.

    Args:
        tools: what the instruction lists: `{"name", "description", "parameters"}` each, the last
            a JSON schema. None: those the environment registers, or a search.
        instruction: replaces the default one; `{tools}` in it is replaced by the list of tools;
            `@path` reads it from a UTF-8 file.

    Raises:
        ConfigError: a tool cannot be listed, or the instruction's file cannot be read.

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
        """A call: a search, a `ToolCall`, or why it is neither."""
        try:
            call = _load_json(text)
        except RecursionError:
            return invalid(f"The tool call is nested too deeply: {MAX_DEPTH} levels at most.")
        except ValueError as error:
            return invalid(f"The tool call is not valid JSON: {error}.")
        if not isinstance(call, dict) or set(call) != {"name", "arguments"}:
            return invalid(
                'A tool call is one JSON object {"name": ..., "arguments": {...}} and nothing '
                f"else, not {_describe(call)}."
            )
        name, arguments = call["name"], call["arguments"]
        if not isinstance(name, str) or not name.strip():
            return invalid(f'The "name" of a tool call is text, not {_describe(name)}.')
        if not isinstance(arguments, dict):
            return invalid(
                f'The "arguments" of a tool call are a JSON object, not {_describe(arguments)}.'
            )
        return (
            _read_search(arguments) if name == SEARCH else Action(TOOL, ToolCall(name, arguments))
        )

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the turn that parses to `action`, in the layout of the models' templates.

        Protocol tags in a thought or an answer are neutralised; in a call they are escaped as JSON
        allows, so that its arguments come back as they were. Raises ValueError for any other kind
        of action, and for a call that is not JSON.
        """
        think = f"<think>\n{self.neutralise(thought)}\n</think>"
        if action.kind == INVALID:
            return think
        if action.kind == ANSWER:
            return f"{think}\n\n<answer> {self.neutralise(str(action.payload))} </answer>"
        if action.kind == SEARCH:
            queries = action.queries
            # `queries` only for several: most calls have one query.
            own = {"query": queries[0]} if len(queries) == 1 else {"queries": list(queries)}
            call = ToolCall(SEARCH, own)
        elif action.kind == TOOL and isinstance(action.payload, ToolCall):
            call = action.payload
        else:
            raise ValueError(
                f"{self.name} writes search, answer and invalid turns and the ToolCall of a tool "
                f"turn, not {action.kind} with {action.payload!r}"
            )
        return f"{think}\n\n<tool_call>\n{self._write(call)}\n</tool_call>"

    def opening(self, kind: str) -> str:
        """Text that commits a turn to a `search`, a `tool` or an `answer`.

        Raises ValueError for any other kind, and for one of which no tool is listed.
        """
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
        # UTF-8, hence a tokenizer, cannot hold lone surrogates.
        text = text.encode("utf-8", "replace").decode("utf-8")
        # "<" occurs in strings only, where JSON allows an escape.
        return self._foreign_tag.sub(lambda tag: "\\u003c" + tag.group()[1:], text)


@cache
def load_search_tool() -> dict[str, Any]:
    """The tool in the default list."""
    tool: dict[str, Any] = json.loads((INSTRUCTIONS / "search_tool.json").read_bytes())
    return tool


def _read_search(arguments: Mapping[str, Any]) -> Action:
    given = list(arguments.values())
    queries = None
    if list(arguments) == ["query"]:
        queries = given
    elif list(arguments) == ["queries"] and isinstance(given[0], list):
        queries = given[0]
    if queries is None or not all(isinstance(query, str) for query in queries):
        return invalid('The tool search takes {"query": "..."} or {"queries": ["...", ...]}.')
    said = tuple(query.strip() for query in queries if query.strip())
    return Action(SEARCH, said) if said else invalid("The search has no words to search for.")


def _load_json(text: str) -> Any:
    """Parse strict JSON, without values that later readers cannot take; ValueError says why not."""
    value = json.loads(text)
    _ensure_shallow(value)
    # Infinite numbers, and halves of surrogate pairs, which JSON can escape; no file can hold them.
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return value


def _ensure_shallow(value: Any) -> None:
    """Raise RecursionError for more than `MAX_DEPTH` levels, long before Python itself does."""
    level: Iterable[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for one in level:
            below += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        if not below:
            return
        level = below
    raise RecursionError


def _describe(value: object) -> str:
    """A JSON value as it was written, cut to what fits into a sentence."""
    return _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


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
    return tuple(dict(tool) for tool in made)
