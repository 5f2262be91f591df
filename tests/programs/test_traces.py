"""Demonstrations from a file: what is read, and what is said of files that cannot be."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from searchrl.errors import DataError
from searchrl.programs.traces import load_traces

TURNS = {
    "prompt": "code of mira?",
    "turns": [
        {"text": "<think>look</think>\n<search>mira</search>", "observation": "\nmira has 7\n"},
        {"text": "<think>found</think>\n<answer>7</answer>"},
    ],
}
MESSAGES = {
    "id": "chat",
    "messages": [
        {"role": "system", "content": "ignored: the protocol's instruction is used"},
        {"role": "user", "content": TURNS["prompt"]},
        {"role": "assistant", "content": TURNS["turns"][0]["text"]},
        {"role": "tool", "content": TURNS["turns"][0]["observation"]},
        {"role": "assistant", "content": TURNS["turns"][1]["text"]},
    ],
}


def write(path: Path, *rows: Any) -> Path:
    texts = [row if isinstance(row, str | bytes) else json.dumps(row) for row in rows]
    data = b"\n".join(text.encode() if isinstance(text, str) else text for text in texts)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_nulls_of_rows_with_other_keys_are_nothing(tmp_path: Path) -> None:
    """Parquet fills them in: both layouts, the last observation, the calls of other messages."""
    text = TURNS["turns"][1]["text"]
    plain = {"id": 3.0, "prompt": "p", "turns": json.dumps([{"text": text}]), "messages": None}
    chat = [{"role": "user", "content": "p", "tool_calls": None, "thinking": None}]
    chat.append({"role": "assistant", "content": text, "tool_calls": [], "thinking": None})
    rows = [plain, {"id": None, "prompt": None, "turns": None, "messages": chat}]
    rows.append({"prompt": "p", "turns": [{"text": text, "observation": None}]})
    traces = load_traces(write(tmp_path / "t.jsonl", *rows))
    assert [one.id for one in traces] == ["3", "t.jsonl:2", "t.jsonl:3"]
    assert {(one.prompt, one.turns) for one in traces} == {("p", ((text, ""),))}


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_both_shapes_say_the_same(tmp_path: Path, name: str) -> None:
    turns, messages = load_traces(write(tmp_path / name, TURNS, "", MESSAGES))
    assert (turns.prompt, turns.turns) == (messages.prompt, messages.turns)
    assert turns.prompt == "code of mira?"
    assert [turn[1] for turn in turns.turns] == ["\nmira has 7\n", ""]
    assert (turns.id, messages.id) == (f"{name}:1", "chat")


BAD_ROWS: list[tuple[Any, str]] = [
    ("{not json", "not JSON: "),
    (b'{"prompt": "\xff"}', "not UTF-8 text"),
    ([1, 2], "expected an object"),
    ({"prompt": "p"}, 'expected "messages", or "prompt" (text) and "turns" (list)'),
    ({"prompt": "p", "turns": []}, "no turns"),
    ({"prompt": "p", "turns": [{"observation": "o"}]}, "turn 0: expected an object with the text"),
    ({"prompt": "p", "turns": [{"text": "t", "observation": 3}]}, 'the text "observation"'),
    ({"messages": {"role": "user"}}, 'expected "messages" to be a list, got {"role": "user"}'),
    ({"messages": [{"role": "user"}]}, 'message 0: expected an object with the text "content"'),
    ({"messages": [{"role": "user", "content": "q"}]}, "needs a user message and, after it"),
    ({"prompt": "p", "turns": [{"text": " "}]}, "turn 0: 'text' is empty"),
    ({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}, "has 'tool_calls'"),
    ({"messages": [{"role": "assistant", "content": "a", "reasoning": "w"}]}, "has 'reasoning'"),
    ({"prompt": "p", "turns": [{"text": "t", "thinking": "why"}]}, "turn 0: has 'thinking' beside"),
    # A tokenizer could not take it.
    ({"prompt": "q", "turns": [{"text": "\ud83d"}]}, "'turn 0: text' holds half of a surrogate"),
]


def test_every_bad_row_is_reported_with_its_line_before_anything_starts(tmp_path: Path) -> None:
    for start in range(0, len(BAD_ROWS), 3):  # an error shows five
        bad = BAD_ROWS[start : start + 3]
        file = write(tmp_path / "t.jsonl", TURNS, *(row for row, _ in bad), MESSAGES)
        with pytest.raises(DataError) as caught:
            load_traces(file)
        _, *lines = str(caught.value).splitlines()
        for number, (line, (_, reason)) in enumerate(zip(lines, bad, strict=True), start=2):
            assert line.startswith(f"  {file}:{number}: ") and reason in line
