"""The scripted policies of `regulations`, and `regulations` as a Gymnasium environment."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

import pytest
from playing import LEVELS, PROTOCOL, Played, env_of, mean, play, tasks_of

import searchrl  # noqa: F401  # registers the Gymnasium ids
from searchrl.core.episode import ANSWER, SEARCH, Passage, Task
from searchrl.envs.regulations import RegulationsEnv, make_expert, make_passive
from searchrl.envs.regulations.scripts import FIRST_THOUGHT, PASSIVE_THOUGHT, SILENT
from searchrl.envs.regulations.world.searching import Finder
from searchrl.protocols import inline

pytestmark = pytest.mark.thorough

KINDS = {"lookup", "two_hop", "not_regulated"}


@cache
def games_of(level: str) -> list[Played]:
    env = env_of(level)
    tasks = tasks_of(level)
    return [play(env, make_expert, split="test", index=task.index) for task in tasks]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def env() -> RegulationsEnv:
    return env_of("normal")


def thought_of(turn: str) -> str:
    found = re.search(r"<think>\s*(.*?)\s*</think>", turn, re.DOTALL)
    assert found is not None
    return found.group(1)


# The scripted policies.
def test_expert_is_right_on_every_kind_and_in_every_wording(level: str) -> None:
    by_name: dict[str, list[float]] = defaultdict(list)
    for game in games_of(level):
        for name in (game.task.kind, *game.task.slices):
            by_name[name].append(game.reward)
    assert set(by_name) >= KINDS
    assert set(by_name) - KINDS == (
        {"seen_wording"} if level == "easy" else {"seen_wording", "unseen_wording"}
    )
    assert all(len(rewards) >= 70 for rewards in by_name.values()), by_name
    assert all(mean(rewards) >= 0.97 for rewards in by_name.values()), by_name


def test_expert_searches_once_per_hop_and_keeps_the_format(level: str) -> None:
    for game in games_of(level):
        kinds = [action.kind for action in game.actions]
        hops = 2 if game.task.kind == "two_hop" and game.reward else 1
        if game.reward:
            assert kinds == [SEARCH] * hops + [ANSWER]
        assert PROTOCOL.format_score(game.turns) == 1.0


def test_expert_decides_from_what_it_was_shown(level: str) -> None:
    assert FIRST_THOUGHT == inline.FIRST_THOUGHT
    for game in games_of(level):
        assert thought_of(game.turns[0]) == FIRST_THOUGHT
        answer, thought = game.actions[-1].payload, thought_of(game.turns[-1])
        if answer == "not regulated":
            assert read_documents(thought, game.observations[-2]) == ""
        else:
            assert answer in read_documents(thought, game.observations[-2])
            assert game.task.meta["condition"].casefold() in thought.casefold()
        for turn, action, shown in zip(
            game.turns[1:-1], game.actions[1:-1], game.observations[1:-2], strict=True
        ):
            bridge = game.task.meta["bridge"]
            clause = read_documents(thought_of(turn), shown)
            assert bridge.casefold() in clause.casefold() and bridge in action.queries[0]


def read_documents(thought: str, observation: str) -> str:
    """The clause said to answer; empty if there is none. Each document is judged by its gist."""
    need = re.match(r"I need the ([^,.]+?) exactly(?:, [^.]+)?\. (?:Doc 1|The) ", thought)
    assert need is not None, thought
    shown = dict(re.findall(r"Doc (\d)\(Title: [^)]*\) (.*)", observation))
    read = re.findall(r"Doc (\d) (?:(states no rule)|is about (.+?))\.", thought)
    assert [rank for rank, *_ in read] == [str(n) for n in range(1, len(read) + 1)]
    verdicts = []
    for _, silent, judged in read:
        gists = re.findall(r"the ([^,.]+?) (exactly|instead)(?= and the |$)", judged)
        assert bool(gists) != bool(silent), thought
        # The verdict follows from a comparison of the two gists.
        assert all((gist == need[1]) == (verdict == "exactly") for gist, verdict in gists)
        verdicts.append("exactly" in {verdict for _, verdict in gists})
    said = re.search(r"\. It says: (.+)\.$", thought)
    if said is None:
        assert thought.endswith(f" {SILENT}") and len(read) == len(shown) and not any(verdicts)
        return ""
    assert verdicts[-1] and not any(verdicts[:-1])
    assert said[1] in shown[read[-1][0]]
    return said[1]


def test_passive_never_searches_and_is_hardly_ever_right(env: RegulationsEnv) -> None:
    games = [play(env, make_passive, split="test", index=i) for i in range(200)]
    assert all([a.kind for a in game.actions] == [ANSWER] for game in games)
    assert all(thought_of(game.turns[0]) == PASSIVE_THOUGHT for game in games)
    assert mean(game.reward for game in games) <= 0.05
    assert len({game.actions[0].payload for game in games}) > 100
    again = play(env, make_passive, split="test", index=3)
    assert again.turns == games[3].turns


def test_a_finder_says_how_much_a_query_misleads() -> None:
    finder = Finder(
        [
            Passage("chess", "Mara Oakley runs the chess club in winter.", "Chess"),
            Passage("choir", "The choir sings in the hall, and the chess players listen.", "Choir"),
            Passage("pool", "Swimming costs £3.", "Pool"),
            *(Passage(f"other-{n}", f"Whoever is late waits {n} days.", "Late") for n in range(9)),
        ]
    )
    assert finder.misleads("Swimming", "pool") == 0.0, "no other article has the word"
    assert 0.0 < finder.misleads("chess", "chess") < 1.0 < finder.misleads("chess", "choir")
    assert finder.misleads("Swimming", "chess") == -1.0, "the article is not found"
    assert finder.misleads("zebra", "pool") == finder.misleads("zebra") == -1.0
    # Without an article: how well the best one fits.
    assert finder.misleads("chess club winter") > finder.misleads("chess") > 0.0


def right_articles(task: Task) -> list[str]:
    """The articles whose statements, in their own words, answer the task."""
    asked = task.meta["abouts"][-1]
    stated = env_of("normal").statements(task)
    return [key for key, ones in stated.items() for one in ones if one.about == asked]


def test_one_article_alone_states_what_is_asked_and_the_answer_once() -> None:
    twice = []
    for task in (task for task in tasks_of("normal") if task.gold_ids):
        assert right_articles(task) == [task.gold_ids[-1]]
        text = {p.id: p.text for p in env_of("normal").passages(task)[1]}[task.gold_ids[-1]]
        stated = env_of("normal").statements(task)[task.gold_ids[-1]]
        # Two rules that share an article have the same value now and then.
        count = sum(one.value.bare == task.answers[0] for one in stated)
        gold = re.escape(task.answers[0])
        assert len(re.findall(rf"(?<![\w£]){gold}(?!\w)", text)) == count, (task.answers, text)
        twice.append(count > 1)
    assert mean(twice) <= 0.02
