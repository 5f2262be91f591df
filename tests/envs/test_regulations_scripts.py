"""The scripted policies of `regulations`, the answers that count, and what is drawn."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

import pytest
from playing import LEVELS, PROTOCOL, Played, env_of, mean, play, tasks_of

import searchrl  # noqa: F401  # registers the Gymnasium ids
from searchrl.core.drawing import Table
from searchrl.core.episode import ANSWER, SEARCH, Action, Episode, EpisodeTurn, Task
from searchrl.envs.regulations import RegulationsEnv, make_expert, make_passive
from searchrl.envs.regulations.scripts import PASSIVE_THOUGHT
from searchrl.envs.regulations.world.names import Value, ValueKind, spell
from searchrl.envs.text import same_answer
from searchrl.protocols import ThinkSearchAnswer
from searchrl.retrieval.bm25 import BM25Retriever
from searchrl.rewards.components import BUILTIN_REWARDS
from searchrl.testing import Says, play_episode

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
@pytest.mark.thorough
def test_expert_is_right_on_every_kind_and_in_every_wording(level: str) -> None:
    by_name: dict[str, list[float]] = defaultdict(list)
    for game in games_of(level):
        for name in (game.task.kind, *game.task.slices):
            by_name[name].append(game.reward)
    kinds = KINDS | ({"three_hop"} if level == "hard" else set())
    slices = {"seen_wording"} if level == "easy" else {"seen_wording", "unseen_wording"}
    assert set(by_name) == kinds | slices
    assert all(len(rewards) >= 70 for rewards in by_name.values()), by_name
    assert all(mean(rewards) >= 0.97 for rewards in by_name.values()), by_name


@pytest.mark.thorough
def test_expert_searches_once_per_hop_and_keeps_the_format(level: str) -> None:
    for game in games_of(level):
        kinds = [action.kind for action in game.actions]
        hops = {"two_hop": 2, "three_hop": 3}.get(game.task.kind, 1)
        if game.reward:
            assert kinds == [SEARCH] * hops + [ANSWER]
        assert PROTOCOL.format_score(game.turns) == 1.0


@pytest.mark.thorough
def test_passive_never_searches_and_is_hardly_ever_right(env: RegulationsEnv) -> None:
    games = [play(env, make_passive, split="test", index=i) for i in range(200)]
    assert all([a.kind for a in game.actions] == [ANSWER] for game in games)
    assert all(thought_of(game.turns[0]) == PASSIVE_THOUGHT for game in games)
    assert mean(game.reward for game in games) <= 0.05
    assert len({game.actions[0].payload for game in games}) > 100
    again = play(env, make_passive, split="test", index=3)
    assert again.turns == games[3].turns


CASES = [
    (
        Value(ValueKind.NUMBER, "12", "days"),
        "12 | 12 days | twelve | twelve days | Twelve days. | 12 Days",
        "13 | 13 days | thirteen days | 12 weeks | 21 | £12 | 12 13 | not regulated",
    ),
    (
        Value(ValueKind.NUMBER, "45", "points"),
        "45 | 45 points | forty-five points | Forty-five",
        "54 points | forty points | 45 days | five",
    ),
    (
        Value(ValueKind.ROOM, "B214"),
        "B214 | room B214 | in room B214 | Room B214 | b214 | In room B214.",
        "B215 | room B215 | in room B215 | C214 | room 214 | room | B21",
    ),
    (
        Value(ValueKind.AFTERNOON, "16:35"),
        "16:35 | at 16:35 | 4.35 pm | at 4.35 pm | 4:35 pm | 4.35pm | 16.35 | 4.35 PM",
        "4.35 am | 4.35 | 16:30 | 4.30 pm | 15:35 | 16 | at 4",
    ),
    (
        Value(ValueKind.MORNING, "09:00"),
        "09:00 | 9:00 | 9 am | at 9 am | 9.00 am | from 09:00 | at 9.00 am",
        "9 pm | 21:00 | 09:05 | 9.05 am | 10:00",
    ),
    (
        Value(ValueKind.MIDDAY, "12:05"),
        "12:05 | 12.05 pm | at 12:05",
        "12.05 am | 12:50 | 00:05 | 12.50 pm",
    ),
    (
        Value(ValueKind.MONEY, "£34"),
        "£34 | 34 | 34 pounds | thirty-four pounds | £34.00 | £34.",
        "£43 | £35 | 34 days | thirty pounds | 3 | 4",
    ),
    (
        Value(ValueKind.DATE, "26 June"),
        "26 June | June 26 | 26th of June | the 26th of June | on 26 June | 26th June | by 26 June",
        "25 June | 26 July | June | 26 | 27th of June",
    ),
    (Value(ValueKind.DATE, "1 May"), "1 May | 1st of May | May 1st", "11 May | 1th of May | 2 May"),
    (Value(ValueKind.DATE, "12 March"), "12th of March | on 12 March", "12nd of March | 2 March"),
    (Value(ValueKind.DATE, "22 March"), "22nd of March | March 22", "22th of March | 2nd of March"),
    (Value(ValueKind.DATE, "23 March"), "23rd of March", "23th of March | 3rd of March"),
    (
        Value(ValueKind.PERSON, "Mara Oakley"),
        "Mara Oakley | mara oakley",
        "Mara | Oakley | Mara Yates",
    ),
    (
        Value(ValueKind.BUILDING, "Heron Hall"),
        "Heron Hall | in Heron Hall",
        "Heron House | Hall | Heron | in Raven Hall",
    ),
    (Value(ValueKind.FORM, "K27"), "K27 | form K27 | Form K27", "K28 | form K28 | form L27 | form"),
    (Value(ValueKind.FUND, "Harker Fund"), "Harker Fund | the Harker Fund", "Harker Hall | Fund"),
    (Value(ValueKind.EXTENSION, "4173"), "4173 | extension 4173", "4174 | extension 4137 | 417"),
    (Value(ValueKind.CODE, "9021"), "9021 | code 9021", "9012 | code 9022"),
]


def is_right(value: Value, answer: str) -> tuple[bool, bool]:
    """What the `em` reward and the environment's own comparison say."""
    task = Task("t", "test", 0, "Which?", answers=value.answers)
    turn = EpisodeTurn(f"<answer>{answer}</answer>", Action(ANSWER, answer))
    episode = Episode(task=task, turns=(turn,), final_answer=answer, format_score=1.0)
    by_env = any(same_answer(answer, gold) for gold in task.answers)
    return BUILTIN_REWARDS["em"]()(episode) == 1.0, by_env


@pytest.mark.parametrize(("value", "right", "wrong"), CASES, ids=[case[0].bare for case in CASES])
def test_all_forms_of_a_value_are_right_and_its_neighbours_wrong(
    value: Value, right: str, wrong: str
) -> None:
    assert value.answers[0] == value.bare and len(set(value.answers)) == len(value.answers)
    for answer in right.split(" | "):
        assert is_right(value, answer) == (True, True), answer
    for answer in wrong.split(" | "):
        assert is_right(value, answer) == (False, False), answer


def test_numbers_are_spelled_as_people_spell_them() -> None:
    assert [spell(n) for n in (0, 9, 13, 20, 21, 99)] == (
        "zero nine thirteen twenty twenty-one ninety-nine".split()
    )
    assert len({spell(n) for n in range(100)}) == 100


READS = ThinkSearchAnswer()


def search_turn(query: str) -> str:
    return READS.render_turn(Action(SEARCH, (query,)), "I look this up.")


def play_two_hop() -> tuple[RegulationsEnv, Episode]:
    """Play a task of two hops with a search that shows the first of its articles alone."""
    env = RegulationsEnv(protocol=READS, retriever=BM25Retriever, topk=1)
    index = next(i for i in range(50) if env.kind_of("test", i) == "two_hop")
    task = env.make_task("test", index)
    (first,) = [one.text for one in env.passages(task)[1] if one.id == task.gold_ids[0]]
    turns = [search_turn(first), READS.render_turn(Action(ANSWER, "no idea"), "A guess.")]
    return env, play_episode(env, Says(turns), READS, split="test", index=index)


def test_regulations_draws_what_the_gold_articles_say_and_when_each_was_shown():
    env, episode = play_two_hop()
    (table,) = env.draw_episode(episode)
    assert isinstance(table, Table) and table.columns == ("hop", "article", "what it says", "shown")
    texts = {passage.id: passage.text for passage in env.passages(episode.task)[1]}
    assert [tuple(row[:2]) for row in table.rows] == [*enumerate(episode.task.gold_ids, 1)]
    for (_, name, text, _), gold in zip(table.rows, episode.task.gold_ids, strict=True):
        assert name == gold and str(text).rstrip("…") == texts[gold][: len(str(text).rstrip("…"))]
    assert [row[3] for row in table.rows] == ["in turn 1", "never"]


def test_regulations_draws_nothing_where_no_article_has_the_answer():
    env = RegulationsEnv(protocol=READS, retriever=BM25Retriever)
    index = next(i for i in range(50) if env.kind_of("test", i) == "not_regulated")
    episode = play_episode(env, Says([search_turn("bus")] * 4), READS, split="test", index=index)
    assert not episode.task.gold_ids and env.draw_episode(episode) == []
