"""The wrapper `altered`: what it puts in place of the gold value, and where it leaves it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from searchrl import make_env
from searchrl.core.episode import Task
from searchrl.envs.altered import Altered, find_other, match_answers


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


QUESTIONS = [
    ("When was the mill built?", "1890"),
    ("How many doors has it?", "12"),
    ("When was the barn built?", "1902"),
    ("Is it red?", "yes"),
    ("Is it green?", "no"),
    ("Who is older, Ada Poe or Bea Cole?", "Ada Poe"),
    ("Who owned it?", "Bea Cole"),
    ("Who sold it?", "Dan Orr"),
]
PASSAGES = {
    "mill": "The mill was built in 1890, and has 12 doors.",
    "barn": "The barn was built in 1902.",
    "both": "The barn and the mill of 1890 were built of stone.",
    "who": "Bea Cole owned it before Ada Poe.",
}


@pytest.fixture
def inner(tmp_path: Path) -> Any:
    questions = [json.dumps({"question": q, "answers": [a]}) for q, a in QUESTIONS]
    passages = [json.dumps({"id": name, "text": text}) for name, text in PASSAGES.items()]
    files = {"questions": str(tmp_path / "q.jsonl"), "corpus": str(tmp_path / "c.jsonl")}
    Path(files["questions"]).write_text("\n".join(questions), "utf-8")
    Path(files["corpus"]).write_text("\n".join(passages), "utf-8")
    return make_env("corpus", **files, test_frac=0)


def test_another_value_is_of_the_same_kind(inner: Any) -> None:
    env = inner.unwrapped
    others = [find_other(env, env.make_task("train", index)) for index in range(len(QUESTIONS))]
    places = [None if one is None else one.index for one in others]
    # Not a count for a year, nor `no` for `yes`; none for what the question or no passage says.
    assert places == [2, None, 0, None, None, None, 7, None]


def search(inner: Any, change: Any) -> tuple[str, dict[str, Any]]:
    env = Altered(inner, change=change)
    _, info = env.reset(options={"split": "train", "index": 0})
    observation, *_, after = env.step("<think>a</think><search>mill built</search>")
    assert after["task"] == info["task"]
    return observation, after


def test_a_changed_passage_keeps_its_original(inner: Any) -> None:
    observation, info = search(inner, "value")
    assert info["task"].answers == ("1890",) and info["task"].changed_answers == ("1902",)
    originals = {one.id: one.original for one in info["passages"]}
    assert originals == {"mill": PASSAGES["mill"], "both": PASSAGES["both"], "barn": ""}
    assert "1890" not in observation and "built in 1902, and has 12 doors" in observation


def test_passages_of_another_question_do_not_hold_the_answer(inner: Any) -> None:
    observation, info = search(inner, "other")
    assert [one.id for one in info["passages"]] == ["barn"] and "1890" not in observation
    observation, info = search(inner, "none")
    assert info["passages"] == () and "No passage" in observation
