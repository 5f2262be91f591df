"""Demonstrations from a file: a JSONL of traces as supervised trajectories.

Owns the two row shapes and their checks: `{"prompt", "turns": [{"text", "observation"}]}` and
`{"messages": [{"role", "content"}]}`, in which assistant messages are turns and what follows one
is its observation. Every bad row is reported, with file and line, before anything starts.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig
from searchrl.contracts import TagProtocol
from searchrl.core.trajectory import Origin, Trajectory, TurnStop
from searchrl.engine.model.codec import TextCodec
from searchrl.errors import DataError


@dataclass(frozen=True, slots=True)
class Trace:
    """One demonstration: the prompt, then (model turn, observation) pairs."""

    id: str
    prompt: str
    turns: tuple[tuple[str, str], ...]


def load_traces(path: str | Path) -> list[Trace]:
    """Read a JSONL (or .jsonl.gz) of traces.

    Raises:
        DataError: listing every unusable row with its line, or a missing or empty file.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"no such file of traces: '{path}'; expected JSONL or JSONL.gz")
    opener: Any = gzip.open if file.suffix == ".gz" else open
    traces, problems = [], []
    try:
        with opener(file, "rb") as raw:
            lines = raw.read().split(b"\n")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"cannot read the traces '{path}': damaged gzip ({error}); unpack it to see, or fetch "
            "it again"
        ) from error
    except OSError as error:
        raise DataError(f"cannot read the traces '{path}': {error.strerror or error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            traces.append(_read(json.loads(line), f"{file.name}:{number}"))
        except ValueError as error:
            problems.append(f"  {path}:{number}: {error}")
        except RecursionError:
            problems.append(f"  {path}:{number}: nested too deeply")
    if problems:
        raise DataError(f"{len(problems)} rows cannot be used:\n" + "\n".join(problems))
    if not traces:
        raise DataError(f"'{path}' holds no traces")
    return traces


def _read(row: Any, name: str) -> Trace:
    if not isinstance(row, Mapping):
        raise ValueError(f"expected an object, got {type(row).__name__}")
    if "messages" in row:
        return Trace(str(row.get("id", name)), *_from_messages(row["messages"]))
    if not isinstance(row.get("prompt"), str) or not isinstance(row.get("turns"), list):
        raise ValueError('expected "messages", or "prompt" (text) and "turns" (list)')
    turns = tuple(
        (_text(turn, "text", f"turn {n}"), _text(turn, "observation", f"turn {n}", default=""))
        for n, turn in enumerate(row["turns"])
    )
    if not turns:
        raise ValueError("no turns")
    return Trace(str(row.get("id", name)), row["prompt"], turns)


def _text(row: Any, key: str, where: str, default: str | None = None) -> str:
    """A text value of an object in a row; ValueError says where and what was found instead."""
    value = row.get(key, default) if isinstance(row, Mapping) else None
    if not isinstance(value, str):
        raise ValueError(f'{where}: expected an object with the text "{key}", got {row!r}'[:200])
    return value


def _from_messages(messages: Any) -> tuple[str, tuple[tuple[str, str], ...]]:
    if not isinstance(messages, list):
        raise ValueError(f'expected "messages" to be a list, got {type(messages).__name__}')
    prompt: list[str] = []
    turns: list[tuple[str, str]] = []
    for n, message in enumerate(messages):
        role = _text(message, "role", f"message {n}")
        content = _text(message, "content", f"message {n}")
        if role == "assistant":
            turns.append((content, ""))
        elif role == "system" and not turns:
            continue
        elif turns:
            turns[-1] = (turns[-1][0], turns[-1][1] + content)
        else:
            prompt.append(content)
    if not prompt or not turns:
        raise ValueError("needs a user message and, after it, an assistant message")
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
    limit = min(config.rollout.max_total_tokens, config.model.max_context)
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
