"""Reformulators: the contract, what a model writes, and what is kept on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_toy import PASSAGES, make_library
from searchrl_control.environment.actions import Action
from searchrl_control.environment.lists import Lists
from searchrl_control.reformulate.classical import Classical
from searchrl_control.reformulate.contract import Asked, Reformulator, Rewrite
from searchrl_control.reformulate.kept import Kept
from searchrl_control.reformulate.writer import Written, read_line
from searchrl_control.searchers.question import Question

from searchrl.api_client import JsonCache
from searchrl.contracts import Passage

ASKED = Asked("where does salt come from", {"salt": 1.0, "come": 1.0}, PASSAGES[:2])


class Counting:
    """A reformulator that counts how often it is asked."""

    key = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def narrow(self, asked: Asked) -> Rewrite:
        self.asked.append("narrow")
        return Rewrite("salt of the sea", {"salt": 2.0, "sea": 0.1})

    def broaden(self, asked: Asked) -> Rewrite:
        self.asked.append("broaden")
        return Rewrite("things from water")


def test_what_was_asked_once_is_never_asked_again(tmp_path: Path) -> None:
    inner = Counting()
    for _ in range(2):
        kept = Kept(inner, tmp_path / "kept.sqlite")
        assert isinstance(kept, Reformulator) and kept.key == "counting"
        assert kept.narrow(ASKED) == Rewrite("salt of the sea", {"salt": 2.0, "sea": 0.1})
        assert kept.broaden(ASKED) == Rewrite("things from water")
    assert inner.asked == ["narrow", "broaden"]


@pytest.mark.parametrize(
    "other",
    [
        Asked("another question", ASKED.weights, ASKED.passages),
        Asked(ASKED.question, {"salt": 1.0}, ASKED.passages),
        Asked(ASKED.question, ASKED.weights, PASSAGES[:1]),
    ],
)
def test_another_search_is_asked_anew(tmp_path: Path, other: Asked) -> None:
    inner = Counting()
    kept = Kept(inner, tmp_path / "kept.sqlite")
    kept.narrow(ASKED)
    kept.narrow(other)
    assert inner.asked == ["narrow", "narrow"]


def test_an_answer_that_was_damaged_is_asked_again(tmp_path: Path) -> None:
    inner = Counting()
    kept = Kept(inner, tmp_path / "kept.sqlite")
    kept.narrow(ASKED)
    cache = JsonCache(tmp_path / "kept.sqlite")
    with cache._database:
        cache._database.execute("UPDATE replies SET reply = ?", ('{"text": 1, "weights": {}}',))
    assert kept.narrow(ASKED).text == "salt of the sea" and len(inner.asked) == 2
    assert JsonCache.key("a", {}) != JsonCache.key("b", {})


def test_a_model_is_shown_the_question_and_what_was_found() -> None:
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return 'New query: "sea salt"\nBecause it is shorter.'

    written = Written(ask, "test")
    assert written.narrow(ASKED) == written.broaden(ASKED) == Rewrite("sea salt")
    assert all(ASKED.question in prompt and "- Tolmere. The old" in prompt for prompt in prompts)
    assert "fewer" in prompts[0] and "more documents" in prompts[1]
    assert written.key == "written:test"


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        ("sea salt", "sea salt"),
        ("\n\n  Query: sea  ", "sea"),
        ("`sea`", "sea"),
        ("", ""),
        ('""', ""),
    ],
)
def test_the_first_line_that_says_anything_is_the_query(reply: str, line: str) -> None:
    assert read_line(reply) == line


def test_a_model_that_writes_nothing_leaves_the_question() -> None:
    assert Written(lambda prompt: " ", "silent").narrow(ASKED).text == ASKED.question


def test_a_rewrite_of_unknown_words_changes_nothing() -> None:
    lists = Lists(Written(lambda prompt: "zebra quagga", "zoo"))
    question = Question(make_library(), ASKED.question)
    begun = lists.begin(question)
    assert lists.top(lists.play(question, begun, Action.NARROW), 8) == lists.top(begun, 8)


def test_text_and_weights_of_a_rewrite_are_searched() -> None:
    library = make_library()
    question = Question(library, ASKED.question)
    lists = Lists(Counting())
    begun = lists.begin(question)
    narrow = lists.play(question, begun, Action.NARROW)
    assert narrow.weights == {"salt": 2.0, "sea": pytest.approx(0.1)}
    lists = Lists(Written(lambda prompt: "honey of bees", "bees"))
    first = lists.top(lists.play(question, begun, Action.BROAD), 1)[0][0]
    assert library.passages[first].id == "bees"


def test_the_classical_one_narrows_by_feedback_and_tells_it_in_words() -> None:
    # Terms in over a tenth of the passages say nothing: a larger collection.
    library = make_library([*PASSAGES, *(Passage(f"x{n}", "elk") for n in range(40))])
    classical = Classical(library)
    told = classical.narrow(Asked("salt", {"salt": 1.0}, (PASSAGES[4],)))
    assert set(told.text.split()) == set(told.weights) and "salt" in told.weights
    assert "fish" in " ".join(told.weights) and max(told.weights, key=told.weights.get) == "salt"
    assert set(classical.broaden(ASKED).weights) >= {"salt", "come"}


def test_settings_are_in_the_key() -> None:
    library = make_library()
    assert Classical(library).key != Classical(library, keep=0.5).key
