"""The policy of `regulations` that matches words: honest, and as strong as we say."""

from typing import Any

import pytest
from playing import PROTOCOL, make_env, mean, play

from searchrl.contracts import Expert, TagProtocol
from searchrl.core.episode import ANSWER, SEARCH, Passage, Task
from searchrl.envs.regulations import make_two_search_regex

FINE = ("Overdue books", "Whoever brings a book back late is fined £14")


def read(question: str, article: tuple[str, str]) -> str:
    """What it answers if its searches, one or two, show an article."""
    policy = make_two_search_regex(None, Task("t", "test", 0, question), PROTOCOL)
    policy.act(f"{question}\nAnswer from the handbook of Elm School; if it does not say, answer: x")
    shown = PROTOCOL.render_observation([Passage("1", article[1], article[0])])
    if (action := PROTOCOL.parse(policy.act(shown))).kind == SEARCH:  # a second look
        action = PROTOCOL.parse(policy.act(shown))
    assert action.kind == ANSWER
    return str(action.payload)


def test_it_is_strong_and_needs_neither_the_environment_nor_what_only_that_knows() -> None:
    def blind(env: Any, task: Task, protocol: TagProtocol) -> Expert:
        return make_two_search_regex(None, Task("", "", -1, task.question), protocol)

    env = make_env()
    assert mean(play(env, blind, split="test", index=index).reward for index in range(64)) >= 0.7


@pytest.mark.parametrize(
    "text",
    [
        f"{FINE[1]}, but in the holidays it is £20.",
        f"In the holidays it is £20, but as a rule {FINE[1]}.",
    ],
)
def test_exception_counts_only_if_it_is_named(text: str) -> None:
    assert read("How much is the fine for a late book?", (FINE[0], text)) == "£14"
    assert read("In the holidays, what is the fine for a late book?", (FINE[0], text)) == "£20"
