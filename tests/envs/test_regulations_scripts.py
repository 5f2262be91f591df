"""The scripted policies of `regulations`, and `regulations` as a Gymnasium environment."""

from __future__ import annotations

import re
from collections import defaultdict

import gymnasium
import pytest
from playing import PROTOCOL, Played, make_env, mean, play

import searchrl  # noqa: F401  # registers the Gymnasium ids
from searchrl.core.episode import ANSWER, SEARCH
from searchrl.envs.regulations import (
    TASK_KINDS,
    RegulationsEnv,
    make_clumsy,
    make_expert,
    make_passive,
)
from searchrl.envs.regulations.scripts import FIRST_THOUGHT
from searchrl.envs.regulations.wordings import load_families, load_topics
from searchrl.protocols import inline
from searchrl.retrieval.ablations import EmptyRetriever

NUM_TEST_TASKS = 500


@pytest.fixture(scope="module")
def env() -> RegulationsEnv:
    return make_env()


@pytest.fixture(scope="module")
def expert_games(env: RegulationsEnv) -> list[Played]:
    return [play(env, make_expert, split="test", index=index) for index in range(NUM_TEST_TASKS)]


# The scripted policies.
def test_expert_is_right_on_every_kind(expert_games: list[Played]) -> None:
    by_kind: dict[str, list[float]] = defaultdict(list)
    for game in expert_games:
        by_kind[game.task.kind].append(game.reward)
    assert mean(game.reward for game in expert_games) >= 0.97
    assert set(by_kind) == set(TASK_KINDS)
    assert all(mean(rewards) >= 0.97 for rewards in by_kind.values()), by_kind


def test_expert_searches_once_per_hop_and_keeps_the_format(expert_games: list[Played]) -> None:
    for game in expert_games:
        kinds = [action.kind for action in game.actions]
        hops = 2 if game.task.kind == "two_hop" and game.reward else 1
        if game.reward:
            assert kinds == [SEARCH] * hops + [ANSWER]
        assert PROTOCOL.format_score(game.turns) == 1.0


def test_expert_decides_from_what_it_was_shown(expert_games: list[Played]) -> None:
    assert FIRST_THOUGHT == inline.FIRST_THOUGHT
    for game in expert_games:
        assert f"<think>{FIRST_THOUGHT}</think>" in game.turns[0]
        answer = game.actions[-1].payload
        thought = re.search("<think>(.*)</think>", game.turns[-1])
        assert thought is not None
        if answer == "not regulated":
            assert read_documents(thought.group(1), game.observations[-2], is_found=False) == ""
        else:
            assert answer in read_documents(thought.group(1), game.observations[-2])
        for turn, action, shown in zip(
            game.turns[1:-1], game.actions[1:-1], game.observations[1:-2], strict=True
        ):
            bridge = game.task.meta["bridge"]
            thought = re.search("<think>(.*)</think>", turn)
            assert thought is not None
            assert bridge.casefold() in read_documents(thought.group(1), shown).casefold()
            assert bridge in action.queries[0]


def read_documents(thought: str, observation: str, is_found: bool = True) -> str:
    """The sentence said to answer, after a check that all before it were quoted and refused."""
    need = re.match(r"I need (.+?) itself\. Doc 1", thought)
    assert need is not None
    read = re.findall(r"Doc (\d) says: (.+?\.) That is (.+?) (itself|instead)\.", thought)
    shown = dict(re.findall(r"Doc (\d)\(Title: [^)]*\) (.*)", observation))
    assert [rank for rank, *_ in read] == [str(n) for n in range(1, len(read) + 1)]
    assert all(sentence in shown[rank] for rank, sentence, *_ in read)
    # The verdict follows from a comparison of the two gists.
    assert all((gist == need.group(1)) == (verdict == "itself") for *_, gist, verdict in read)
    assert all(verdict == "instead" for *_, verdict in read[:-1])
    if is_found:
        assert thought.endswith(" itself.")
        return str(read[-1][1])
    assert len(read) == len(shown) and thought.endswith("The handbook does not say.")
    return ""


def test_a_gist_stands_for_one_matter_and_its_section_tells_it_from_all_others() -> None:
    sections = [topic.gist.split()[-1] for topic in load_topics()]
    sections += [f.link_gist(s).split()[-1] for f in load_families() for s in f.subjects]
    assert len(set(sections)) == len(sections) > 80
    assert all(re.fullmatch("§[A-J][K-T]", section) for section in sections)


def test_expert_that_is_shown_nothing_says_not_regulated(env: RegulationsEnv) -> None:
    blind = make_env(retriever=lambda passages: EmptyRetriever(passages))
    games = [play(blind, make_expert, split="test", index=i) for i in range(40)]
    assert {game.actions[-1].payload for game in games} == {"not regulated"}


def test_passive_never_searches_and_is_hardly_ever_right(env: RegulationsEnv) -> None:
    games = [play(env, make_passive, split="test", index=i) for i in range(300)]
    assert all([a.kind for a in game.actions] == [ANSWER] for game in games)
    assert all("<think>I know this.</think>" in game.turns[0] for game in games)
    assert mean(game.reward for game in games) <= 0.05
    assert len({game.actions[0].payload for game in games}) > 150
    again = play(env, make_passive, split="test", index=3)
    assert again.turns == games[3].turns


def test_clumsy_searches_and_fails_in_three_ways(env: RegulationsEnv) -> None:
    games = [play(env, make_clumsy, split="test", index=i) for i in range(300)]
    assert all(game.actions[0].kind == SEARCH for game in games)
    assert all(PROTOCOL.format_score(game.turns) == 1.0 for game in games)
    assert 0.35 <= mean(game.reward for game in games) <= 0.70
    thin = [g for g in games if g.actions[0].queries[0] == g.task.meta["thin_query"]]
    assert 0.3 <= len(thin) / len(games) <= 0.6
    early = [g for g in games if g.actions[-1].payload == g.task.meta["bridge"]]
    assert len(early) >= 10 and not any(game.reward for game in early)
    guessed = [g for g in games if g.task.kind == "not_regulated" and not g.reward]
    assert len(guessed) >= 10
    assert all(g.actions[-1].payload in g.observations[-2] for g in guessed)
    assert play(env, make_clumsy, split="test", index=9).turns == games[9].turns


# Gymnasium.
def test_a_plain_gymnasium_loop_plays_it() -> None:
    env = gymnasium.make("searchrl/Regulations-v0", render_mode="ansi")
    prompt, info = env.reset(seed=4)
    is_over, total = False, 0.0
    turn = "<think>I should look this up.</think>\n<search>library book</search>"
    while not is_over:
        _, reward, terminated, truncated, info = env.step(turn)
        turn = f"<think>Found.</think>\n<answer>{info['task'].answers[0]}</answer>"
        total, is_over = total + float(reward), terminated or truncated
    assert total == 1.0 and prompt in str(env.render())
