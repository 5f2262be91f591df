"""The wrapper `altered`: what it puts in place of the gold value, and where it leaves it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from searchrl import make_env
from searchrl.core.episode import Task
from searchrl.envs.altered import Altered, find_other, match_answers
from searchrl.errors import ConfigError


@pytest.mark.parametrize(
    ("answers", "text", "changed"),
    [
        (("12", "12 days"), "12 days: not 120, 12:30 or 1.12.", "X days: not 120, 12:30 or 1.12."),
        (("12 days", "12"), "12 days, and 12.", "X, and X."),
        (("£29", "29", "twenty-nine"), "£29, Twenty-nine", "X, X"),
        (("US",), "Tell us of the US.", "Tell us of the X."),
        (("Old Hall", "the Hall"), "The old hall: the Hall.", "The X: X."),
    ],
)
def test_the_value_is_replaced_as_a_whole_word(
    answers: tuple[str, ...], text: str, changed: str
) -> None:
    assert match_answers(Task("t", "test", 0, "?", answers)).sub("X", text) == changed


def test_another_value_is_of_the_same_kind(tmp_path: Path) -> None:
    rows = [
        ("When was the mill built?", "1890"),
        ("How many doors has it?", "12"),
        ("When was the barn built?", "1902"),
        ("Is it red?", "yes"),
        ("Is it green?", "no"),
        ("Who is older, Ada Poe or Bea Cole?", "Ada Poe"),
        ("Who built it?", "Bea Cole"),
        ("Who sold it?", "Dan Orr"),
    ]
    file, corpus = tmp_path / "questions.jsonl", tmp_path / "corpus.jsonl"
    lines = [json.dumps({"question": q, "answers": [a]}) for q, a in rows]
    file.write_text("\n".join(lines), "utf-8")
    corpus.write_text(json.dumps({"id": "p", "text": "A mill."}), "utf-8")
    files = {"questions": str(file), "corpus": str(corpus)}
    env: Any = make_env("corpus", **files, test_frac=0).unwrapped
    others = [find_other(env, env.make_task("train", index)) for index in range(len(rows))]
    places = [None if one is None else one.index for one in others]
    # Not a count for a year, not `no` for `yes`, and nothing for an answer of the question.
    assert places == [2, None, 0, None, None, None, 7, 5]


@pytest.fixture(scope="module")
def gold() -> str:
    task: Task = make_env("regulations").reset(options={"split": "test", "index": 1})[1]["task"]
    return task.answers[0]


def search(change: Any) -> tuple[Altered, str, dict[str, Any]]:
    env = Altered(make_env("regulations"), change=change)
    _, info = env.reset(options={"split": "test", "index": 1})
    query = info["task"].meta["again"]
    observation, _, _, _, after = env.step(f"<think>a</think><search>{query}</search>")
    assert after["task"] == info["task"]
    return env, observation, after


def test_a_changed_passage_keeps_its_original_and_its_place(gold: str) -> None:
    _, observation, info = search("value")
    new, *_ = info["task"].changed_answers
    (changed,) = (one for one in info["passages"] if one.original)
    assert changed.text == changed.original.replace(gold, new)
    assert changed.text in observation and gold not in observation
    assert observation == search("value")[1]
    assert gold not in info["task"].changed_answers and gold in info["task"].answers


def test_passages_of_another_question_do_not_hold_the_answer(gold: str) -> None:
    _, observation, info = search("other")
    assert info["passages"] and gold not in observation
    assert not any(one.original for one in info["passages"])
    assert search("none")[2]["passages"] == ()


def test_an_environment_without_passages_is_refused() -> None:
    with pytest.raises(ConfigError, match="shows no passages"):
        Altered(gymnasium.make("FrozenLake-v1"))
