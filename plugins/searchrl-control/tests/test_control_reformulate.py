"""Reformulators: the contract, what a model writes, and what is searched of it."""

from __future__ import annotations

import pytest
from control_toy import PASSAGES, make_library
from searchrl_control.environment.actions import PUBLISHED, SETS, Action
from searchrl_control.environment.games import ListGame
from searchrl_control.reformulate.classical import Classical
from searchrl_control.reformulate.contract import Asked, Reformulator, Rewrite
from searchrl_control.reformulate.writer import Written, read_line
from searchrl_control.searchers.question import Question

from searchrl.contracts import Passage

ASKED = Asked("where does salt come from", {"salt": 1.0, "come": 1.0}, PASSAGES[:2])


class Own:
    """A reformulator of a user's own."""

    def narrow(self, asked: Asked) -> Rewrite:
        return Rewrite("salt of the sea", {"salt": 2.0, "sea": 0.1})

    def broaden(self, asked: Asked) -> Rewrite:
        return Rewrite("things from water")


def test_a_model_is_shown_the_question_and_what_was_found() -> None:
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return 'New query: "sea salt"\nBecause it is shorter.'

    written = Written(ask)
    assert written.narrow(ASKED) == written.broaden(ASKED) == Rewrite("sea salt")
    assert all(ASKED.question in prompt and "- Tolmere. The old" in prompt for prompt in prompts)
    assert "fewer" in prompts[0] and "more documents" in prompts[1]


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        ("sea salt", "sea salt"),
        ("\n\n  Query: sea  ", "sea"),
        ("`sea`", "sea"),
        ("", ""),
        ('""', ""),
        ("<think>\nhm\n</think>\n\nQuery: salt and sea\nmore", "salt and sea"),
        ("<think> it never ends", ""),
    ],
)
def test_the_first_line_that_says_anything_is_the_query(reply: str, line: str) -> None:
    assert read_line(reply) == line


def test_a_model_that_writes_nothing_leaves_the_question() -> None:
    assert Written(lambda prompt: " ").narrow(ASKED).text == ASKED.question


def game_of(reformulator: Reformulator) -> ListGame:
    return ListGame(Question(make_library(), ASKED.question), SETS[PUBLISHED], reformulator)


def test_a_rewrite_of_unknown_words_changes_nothing() -> None:
    game = game_of(Written(lambda prompt: "zebra quagga"))
    begun = game.begin()
    after = game.play(begun, Action.NARROW)
    assert game.top(after, 8) == game.top(begun, 8) and after.text == begun.text


def test_text_and_weights_of_a_rewrite_are_searched() -> None:
    game = game_of(Own())
    narrow = game.play(game.begin(), Action.NARROW)
    terms = game.question.library.terms
    assert terms.weights_of(narrow.query) == {"salt": 2.0, "sea": pytest.approx(0.1)}
    game = game_of(Written(lambda prompt: "honey of bees"))
    first = game.top(game.play(game.begin(), Action.BROAD), 1)[0][0]
    assert game.question.library.passages[first].id == "bees"


def test_the_classical_one_narrows_by_feedback_and_tells_it_in_words() -> None:
    # Terms in over a tenth of the passages say nothing: a larger collection.
    library = make_library([*PASSAGES, *(Passage(f"x{n}", "elk") for n in range(40))])
    classical = Classical(library)
    told = classical.narrow(Asked("salt", {"salt": 1.0}, (PASSAGES[4],)))
    assert set(told.text.split()) == set(told.weights) and "salt" in told.weights
    assert "fish" in " ".join(told.weights) and max(told.weights, key=told.weights.get) == "salt"
    assert set(classical.broaden(ASKED).weights) >= {"salt", "come"}
