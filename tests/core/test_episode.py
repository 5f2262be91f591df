"""What is derived from an episode and from the curves of a run."""

import math

import pytest

from searchrl.contracts.history import History, Point
from searchrl.core.episode import Action, Episode, EpisodeTurn, Passage, Task, is_finite_number

SEARCH = EpisodeTurn("s", Action("search", ("a", "b")), (Passage("1", "x"), Passage("2", "y")))
TOOL = EpisodeTurn("t", Action("tool", ("not", "queries")))
INVALID = EpisodeTurn("i", Action("invalid", None, "why"))
ANSWER = EpisodeTurn("a", Action("answer", "4"))


@pytest.mark.parametrize(
    ("turns", "answer", "searches", "tools", "passive"),
    [
        ((SEARCH, SEARCH, ANSWER), "4", 2, 0, False),
        ((TOOL, INVALID, TOOL, ANSWER), "4", 0, 2, False),
        ((SEARCH, TOOL, ANSWER), "4", 1, 1, False),
        ((INVALID, ANSWER), "4", 0, 0, True),
        ((INVALID,), None, 0, 0, False),
    ],
)
def test_what_an_episode_counts(
    turns: tuple[EpisodeTurn, ...], answer: str | None, searches: int, tools: int, passive: bool
) -> None:
    episode = Episode(Task("t", "test", 0, "?"), turns, answer)
    assert (episode.num_searches, episode.num_tool_calls) == (searches, tools)
    assert episode.is_passive is passive
    assert episode.queries == ("a", "b") * searches
    assert [passage.id for passage in episode.passages] == ["1", "2"] * searches


def test_numbers_are_finite_and_no_text() -> None:
    assert all(map(is_finite_number, (0, -1.5, True)))
    assert not any(map(is_finite_number, ("1", b"1", math.nan, -math.inf, None, 10**400)))


def test_a_history_answers_by_step_phase_and_name() -> None:
    history = History({"optim": {"lr": 0.1}})
    history.add(4, "during", {"em": {"value": 1, "low": 0.5, "high": 1.0, "n": 8}})
    history.add(1, "train", {"loss": {"value": 0.1}})
    for step in (3, 5):
        history.add(step, "train", {"loss": {"value": step / 10}, "kl": {"value": 2}})
    assert history.step == 5 and history.steps() == [1, 3, 5] and history.steps(last=2) == [3, 5]
    assert [history.at(step, "loss") for step in (1, 3, 4, 5)] == [0.1, 0.3, None, 0.5]
    assert history.at(1, "kl") is None and history.names() == ["loss", "kl"]
    assert history.curve("kl", last=1) == [Point(5, 2.0)] and history.curve("em") == []
    assert history.curve("em", "during") == [Point(4, 1.0, 0.5, 1.0, 8)]
    assert (history.setting("optim.lr"), history.setting("optim.lr.x")) == (0.1, None)
    history.add(5, "after", {"em/a": {"value": 1}, "toy/em/a": {"value": 1}})
    assert history.names("em/", "after") == ["em/a"]
    history.add(2, "before", {})
    history.clear()
    assert history.step == 5 and history.steps() == [] == history.names()
