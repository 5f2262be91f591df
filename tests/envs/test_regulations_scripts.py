"""The scripted policies of `regulations`, and `regulations` as a Gymnasium environment."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

import pytest
from playing import LEVELS, PROTOCOL, Played, env_of, mean, play, tasks_of

import searchrl  # noqa: F401  # registers the Gymnasium ids
from searchrl.core.episode import ANSWER, SEARCH
from searchrl.envs.regulations import RegulationsEnv, make_clumsy, make_expert, make_passive
from searchrl.envs.regulations.scripts import FIRST_THOUGHT, PASSIVE_THOUGHT, SILENT
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


def test_clumsy_searches_and_fails_in_three_ways(env: RegulationsEnv) -> None:
    games = [play(env, make_clumsy, split="test", index=i) for i in range(200)]
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
