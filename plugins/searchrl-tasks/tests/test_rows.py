"""Rows of every shape, and of none: an example or a message with the row's number."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from searchrl_tasks.env import Examples
from searchrl_tasks.made import TOOLS, make_rows
from searchrl_tasks.rewards import make_auto
from searchrl_tasks.rows import Example, parse_example, split_examples

from searchrl import DataError
from searchrl.contracts import TOOL, Action, Episode, EpisodeTurn, ToolCall
from searchrl.data import BadRow, Row
from searchrl.protocols import ThinkSearchAnswer

ROWS = [row for _, row in zip(range(60), make_rows(1), strict=False)]


def read(row: dict[str, Any]) -> Example:
    return parse_example(Row(7, row))


def test_openhermes() -> None:
    said = [("system", "Be brief."), ("human", "Hi, I am Ada."), ("gpt", "Hello."),
            ("human", "Who am I?"), ("gpt", "Ada.")]  # fmt: skip
    one = read({"conversations": [{"from": who, "value": text} for who, text in said]})
    assert (one.id, one.kind, one.question, one.answer) == ("row-7", "chat", "Who am I?", "Ada.")
    assert one.prompt == "Be brief.\nuser: Hi, I am Ada.\nassistant: Hello.\nuser: Who am I?"


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"instruction": "Add.", "output": "```python\nx = 1 + 1\n```"}, "code"),
        ({"instruction": "Add.", "input": "1, 1", "output": "print(1 + 1)"}, "code"),
        ({"instruction": "Add.", "output": "```java\nint x = 1;\n```"}, "chat"),
        ({"instruction": "Name a town.", "output": "Paris"}, "chat"),
        ({"instruction": "Name a town.", "output": "Paris", "kind": "code"}, "code"),
        ({"instruction": "Name a town.", "output": "Paris", "kind": "geography"}, "chat"),
    ],
)
def test_evol_instruct_is_code_where_it_is_python(row: dict[str, Any], kind: str) -> None:
    assert read(row).kind == kind
    assert read({"instruction": "Add.", "input": "1", "output": "2"}).question == "Add.\n\n1"


GLAIVE = {
    "system": "SYSTEM: You may call -\n" + "\n\n".join(json.dumps(one, indent=1) for one in TOOLS),
    "chat": "USER: Hi\n\n\nASSISTANT: Hello! <|endoftext|>\n\n\nUSER: Ring Ada at 9\n\n\n"
    'ASSISTANT: <functioncall> {"name": "ring", "arguments": \'{"name": "Ada\\\'s", "hour": 9}\'}'
    " <|endoftext|>\n\n\nFUNCTION RESPONSE: {\"ok\": true}\n\n\nASSISTANT: Done. <|endoftext|>",
}  # fmt: skip


def test_glaive() -> None:
    one = read(GLAIVE)
    assert one.kind == "function_call" and one.question == "Ring Ada at 9"
    assert one.call == ToolCall("ring", {"name": "Ada's", "hour": 9})
    assert (one.response, one.answer) == ('{"ok": true}', "Done.")
    assert one.tools == TOOLS
    assert one.prompt.startswith("You may call -\n") and "assistant: Hello!" in one.prompt
    again = GLAIVE["chat"].replace("Done.", '<functioncall> {"name": "ring", "arguments": {}}')
    assert read({"chat": again}).answer == "" and read({"chat": again}).response == one.response
    plain = read({"system": "SYSTEM: Be kind.", "chat": "USER: Hi\n\nASSISTANT: Hello!"})
    assert (plain.kind, plain.answer, plain.prompt) == ("chat", "Hello!", "Be kind.\nHi")


CHATML: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Ring Ada at 9"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "ring", "arguments": '{"hour": 9}'}}],
        },
        {"role": "tool", "content": "ok"},
        {"role": "assistant", "content": "Done."},
    ],
    "tools": [{"type": "function", "function": TOOLS[2]}],
}


def test_chatml_as_messages_and_as_text() -> None:
    one = read(CHATML)
    assert one.call == ToolCall("ring", {"hour": 9}) and one.tools == [TOOLS[2]]
    assert (one.response, one.answer) == ("ok", "Done.")
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert read({"text": text + "Hello!<|im_end|>"}).answer == "Hello!"
    called = '<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call><|im_end|>'
    assert read({"text": text + called}).call == ToolCall("ring", {})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"question": "Who?"}, 'has no known shape, only ["question"]'),
        ({"conversations": "Hi"}, "has no known shape"),
        ({"conversations": [{"from": "human"}]}, "a message without a role and a text"),
        ({"messages": [{"role": "boss", "content": "Hi"}]}, "has a message of 'boss'"),
        ({"conversations": []}, "has no answer of an assistant"),
        ({"chat": "USER: Hi"}, "has no answer of an assistant"),
        ({"chat": "ASSISTANT: Hi"}, "has no answer of an assistant"),
        ({"instruction": " ", "output": "x"}, "has no answer of an assistant"),
        ({"chat": "USER: Hi\nASSISTANT: <functioncall> {name: x}"}, "is not JSON: '{name: x}'"),
        ({"chat": "USER: Hi\nASSISTANT: <functioncall> " + "[" * 5000}, "is not JSON"),
        ({"chat": "USER: Hi\nASSISTANT: <functioncall> [1]"}, "call that is not a name"),
        ({"chat": "USER: Hi\nASSISTANT: x", "system": "{1}"}, "is not JSON"),
        ({"chat": "USER: Hi\nASSISTANT: x", "system": "{}"}, "no list of objects with a name"),
        ({"text": "plain"}, "has no known shape"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow) as raised:
        read(row)
    assert reason in str(raised.value)


def mutate(row: dict[str, Any], rng: Random) -> dict[str, Any]:
    """A row with one place, or three, changed into something else."""
    row = copy.deepcopy(row)
    for _ in range(rng.choice([1, 1, 1, 3])):
        holder, key = rng.choice([*walk(row)] or [({"": ""}, "")])
        old = holder[key]
        text = old if isinstance(old, str) else "x"
        at = rng.randrange(len(text) + 1)
        holder[key] = rng.choice([
            None, 3, float("nan"), [], {}, [[]], {"a": 1}, True, "", "\ud800", "{" * 3000,
            text[:at], text[:at] + rng.choice(["{", "}", "'", '"', "\\", "<functioncall>", "\x00",
            "USER:", "<|im_start|>user\n", "```", "[" * 2000]) + text[at:], text[at:] + text[:at],
        ])  # fmt: skip
        if rng.random() < 0.2:
            del holder[key]
    return row


def walk(value: Any) -> Any:
    for key in [*value] if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from walk(value[key])


def test_two_thousand_fuzzed_rows_are_a_task_or_a_message(tmp_path: Path) -> None:
    rng, good = Random(0), []
    for number in range(2000):
        row = mutate(rng.choice([*ROWS, GLAIVE, *[CHATML] * 9]), rng)
        try:
            parse_example(Row(number, row))
        except BadRow as reason:
            assert 10 < len(str(reason)) < 500
        else:
            good.append(row)
    assert 400 < len(good) < 1600
    file = tmp_path / "good.jsonl"
    file.write_text("\n".join(map(json.dumps, good)))
    env, auto = Examples(protocol=ThinkSearchAnswer(), questions=str(file)), make_auto()
    for split in env.splits:
        for index in range(env.num_tasks(split)):
            prompt, info = env.reset(options={"split": split, "index": index})
            task, call = info["task"], info["task"].meta.get("call")
            assert prompt.strip() and task.answers[0].strip()
            turns = (EpisodeTurn("", Action(TOOL, call)),) if call else ()
            assert 0 < auto(Episode(task, turns, final_answer=task.answers[0])) <= 1
            assert env.step("<think>x</think>\n<answer> x </answer>")[2]


def test_bad_rows_of_a_file_are_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, [ROWS[0], {"chat": "USER: Hi"}, {"a": 1}])))
    with pytest.raises(DataError, match=r"rows.jsonl:2: has no answer") as raised:
        Examples(protocol=ThinkSearchAnswer(), questions=str(file))
    assert "rows.jsonl:3: has no known shape" in str(raised.value)


def test_no_prompt_is_in_two_splits() -> None:
    every = [parse_example(Row(*row)) for row in enumerate(make_rows(0))]
    assert every == [parse_example(Row(*row)) for row in enumerate(make_rows(0))]
    parts = {name: {one.prompt for one in own} for name, own in split_examples(every).items()}
    assert len(parts["train"] | parts["validation"] | parts["test"]) == sum(
        map(len, parts.values())
    )
    assert len(parts["test"]) == len(parts["validation"]) == 352
    assert {one.kind for one in split_examples(every)["test"]} == {"chat", "code", "function_call"}
