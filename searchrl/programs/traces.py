"""Demonstrations from a file: rows of traces as supervised trajectories.

Owns the two row shapes and their checks: `{"prompt", "turns": [{"text", "observation"}]}` and
`{"messages": [{"role", "content"}]}`, in which assistant messages are turns and the messages after
one are its observation. Files, formats and lines are read by `data.rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig
from searchrl.contracts import TagProtocol
from searchrl.core.trajectory import Origin, Trajectory, TurnStop
from searchrl.data.cells import read_id, unpack
from searchrl.data.problems import BadRow, Problems, Row, ensure_encodable
from searchrl.data.rows import parse_rows
from searchrl.engine.model.rendering import TextCodec
from searchrl.errors import show_value

TRACE_SHAPES = '{"prompt", "turns": [{"text", "observation"}]} or {"messages"}'
_PARTS = ("tool_calls", "function_call", "reasoning_content", "reasoning", "thinking")
"""Parts of a message that other programs keep beside its text."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One demonstration: the prompt, then (model turn, observation) pairs."""

    id: str
    prompt: str
    turns: tuple[tuple[str, str], ...]


def load_traces(path: str | Path) -> list[Trace]:
    """Read a file of traces: JSONL, JSON or Parquet, as for questions; DataError names bad rows."""
    file, problems = Path(path), Problems()
    parse = partial(_parse, file_name=file.name)
    expected = f"trace; expected rows {TRACE_SHAPES}"
    traces = list(parse_rows(file, problems, parse, expected))
    problems.ensure_none()
    return traces


def _parse(row: Row, file_name: str) -> Trace:
    value = row.value
    name = read_id(value) or f"{file_name}:{row.number}"
    if value.get("messages") is not None:
        return Trace(name, *_read_messages(unpack(value["messages"])))
    listed = unpack(value.get("turns"))
    if not isinstance(value.get("prompt"), str) or not isinstance(listed, list):
        raise BadRow('expected "messages", or "prompt" (text) and "turns" (list)')
    turns = tuple(
        (_read_turn(turn, "text", f"turn {n}"), _text(turn, "observation", f"turn {n}", ""))
        for n, turn in enumerate(listed)
    )
    if not turns:
        raise BadRow("no turns")
    return Trace(name, ensure_encodable("prompt", value["prompt"]), turns)


def _text(row: Any, key: str, where: str, default: str | None = None) -> str:
    """A text value of an object in a row; `BadRow` says where and what was found instead."""
    value = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(value := default if value is None else value, str):
        raise BadRow(f'{where}: expected an object with the text "{key}", got {show_value(row)}')
    return ensure_encodable(f"{where}: {key}", value)


def _read_turn(row: Any, key: str, where: str) -> str:
    """The text of a turn; `BadRow` if it has other parts, which would not be trained."""
    for part in _PARTS if isinstance(row, Mapping) else ():
        if row.get(part):
            told = f"has '{part}' beside its text, which nothing would train"
            raise BadRow(f"{where}: {told}; write the whole turn in '{key}', with its tags")
    text = _text(row, key, where)
    if not text.strip():
        raise BadRow(f"{where}: '{key}' is empty; a turn is what the model should write")
    return text


def _read_messages(messages: Any) -> tuple[str, tuple[tuple[str, str], ...]]:
    if not isinstance(messages, list):
        raise BadRow(f'expected "messages" to be a list, got {show_value(messages)}')
    prompt: list[str] = []
    turns: list[tuple[str, str]] = []
    for n, message in enumerate(messages):
        role = _text(message, "role", f"message {n}")
        if role == "assistant":
            turns.append((_read_turn(message, "content", f"message {n}"), ""))
            continue
        content = _text(message, "content", f"message {n}")
        if role == "system" and not turns:
            continue
        if turns:
            turns[-1] = (turns[-1][0], turns[-1][1] + content)
        else:
            prompt.append(content)
    if not prompt or not turns:
        raise BadRow("needs a user message and, after it, an assistant message")
    return "\n".join(prompt), tuple(turns)


def trace_trajectory(
    trace: Trace, codec: TextCodec, protocol: TagProtocol, config: RunConfig
) -> Trajectory:
    """Encode a trace as a demonstration; cut at the run's token limit, never inside a turn."""
    trajectory = Trajectory(trace.id, trace.id, origin=Origin.DEMONSTRATION, task_id=trace.id)
    rendered = codec.render_prompt(
        protocol.instruction, trace.prompt, thinking=config.model.thinking
    )
    trajectory.append_prompt(rendered.ids)
    limit = config.context_tokens
    for text, observation in trace.turns:
        ids = codec.encode_model_text(text)
        if len(trajectory) + len(ids) > limit:
            break
        trajectory.append_model(ids, None, version=-1, reason=TurnStop.STOP_STRING)
        if observation:
            seen = codec.encode_plain(observation)
            if len(trajectory) + len(seen) > limit:
                break
            trajectory.append_env(seen)
    return trajectory
