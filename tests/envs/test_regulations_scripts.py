"""The scripted policies of `regulations`, the answers that count, and what is drawn."""

import re
from collections import defaultdict
from functools import cache

import pytest
from playing import LEVELS, PROTOCOL, Played, env_of, mean, play, tasks_of

import searchrl  # noqa: F401  # registers the Gymnasium ids
from searchrl.core.drawing import Table
from searchrl.core.episode import ANSWER, SEARCH, Action, Episode, EpisodeTurn, Task
from searchrl.envs.regulations import RegulationsEnv, make_expert, make_passive
from searchrl.envs.regulations.env import MIXES
from searchrl.envs.regulations.questions import IN_OTHER_WORDS, NOT_REGULATED
from searchrl.envs.regulations.scripts import PASSIVE_THOUGHT
from searchrl.envs.regulations.world.names import Value, ValueKind
from searchrl.envs.text import same_answer
from searchrl.retrieval.bm25 import BM25Retriever
from searchrl.rewards.components import BUILTIN_REWARDS
from searchrl.testing import Says, play_episode

AGAIN = (*IN_OTHER_WORDS, NOT_REGULATED)
"""Kinds in which the expert searches once more than there are hops."""


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


@pytest.mark.thorough
def test_expert_is_right_on_every_kind_and_in_every_wording(level: str) -> None:
    by_name: dict[str, list[float]] = defaultdict(list)
    for game in games_of(level):
        for name in (game.task.kind, *game.task.slices):
            by_name[name].append(game.reward)
    kinds = set(MIXES[env_of(level).difficulty])
    slices = {"seen_wording"} if level == "easy" else {"seen_wording", "unseen_wording"}
    assert set(by_name) == kinds | slices
    assert all(len(rewards) >= 30 for rewards in by_name.values()), by_name
    assert all(mean(rewards) >= 0.97 for rewards in by_name.values()), by_name


@pytest.mark.thorough
def test_expert_searches_once_per_hop_and_keeps_the_format(level: str) -> None:
    for game in games_of(level):
        kinds = [action.kind for action in game.actions]
        num_searches = max(1, len(game.task.gold_ids)) + bool(game.task.kind in AGAIN)
        if game.reward:
            assert kinds == [SEARCH] * num_searches + [ANSWER]
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
    (ValueKind.NUMBER, "12", "12 days | twelve | Twelve days.", "13 | 12 weeks | 21 | £12 | 12 13"),
    (ValueKind.NUMBER, "45", "forty-five days", "54 days | forty days | five"),
    (ValueKind.ROOM, "B214", "room B214 | In room B214.", "B215 | C214 | room 214 | room | B21"),
    (ValueKind.AFTERNOON, "16:35", "at 16:35 | 4.35 pm | 4:35 pm | 16.35", "4.35 am | 4.35 | 16"),
    (ValueKind.MORNING, "09:00", "9:00 | at 9 am | from 09:00", "9 pm | 21:00 | 09:05 | 10:00"),
    (ValueKind.MIDDAY, "12:05", "12.05 pm | at 12:05", "12.05 am | 12:50 | 00:05"),
    (ValueKind.MONEY, "£34", "34 | thirty-four pounds | £34.00 | £34.", "£43 | 34 days | 3 | 4"),
    (ValueKind.DATE, "26 June", "June 26 | the 26th of June | by 26 June", "26 July | June | 26"),
    (ValueKind.DATE, "1 May", "1st of May | May 1st", "11 May | 1th of May | 2 May"),
    (ValueKind.DATE, "12 March", "12th of March", "12nd of March | 2 March"),
    (ValueKind.DATE, "22 March", "22nd of March", "22th of March | 2nd of March"),
    (ValueKind.PERSON, "Mara Oakley", "mara oakley", "Mara | Oakley | Mara Yates"),
    (ValueKind.BUILDING, "Heron Hall", "in Heron Hall", "Heron House | Hall | in Raven Hall"),
    (ValueKind.FORM, "K27", "form K27", "K28 | form L27 | form"),
    (ValueKind.FUND, "Harker Fund", "the Harker Fund", "Harker Hall | Fund"),
    (ValueKind.EXTENSION, "4173", "extension 4173", "4174 | extension 4137 | 417"),
    (ValueKind.CODE, "9021", "code 9021", "9012 | code 9022"),
]


def is_right(value: Value, answer: str) -> tuple[bool, bool]:
    task = Task("t", "test", 0, "Which?", answers=value.answers)
    turn = EpisodeTurn(f"<answer>{answer}</answer>", Action(ANSWER, answer))
    episode = Episode(task=task, turns=(turn,), final_answer=answer, format_score=1.0)
    by_env = any(same_answer(answer, gold) for gold in task.answers)
    return BUILTIN_REWARDS["em"]()(episode) == 1.0, by_env


@pytest.mark.parametrize(("kind", "text", "right", "wrong"), CASES)
def test_all_forms_of_a_value_are_right_and_its_neighbours_wrong(
    kind: ValueKind, text: str, right: str, wrong: str
) -> None:
    value = Value(kind, text, "days") if kind is ValueKind.NUMBER else Value(kind, text)
    assert value.answers[0] == value.bare and len(set(value.answers)) == len(value.answers)
    for answer in (text, *right.split(" | ")):
        assert is_right(value, answer) == (True, True), answer
    for answer in (*wrong.split(" | "), "not regulated"):
        assert is_right(value, answer) == (False, False), answer


def test_regulations_draws_what_the_gold_articles_say_and_when_each_was_shown():
    env = RegulationsEnv(protocol=PROTOCOL, retriever=BM25Retriever, topk=1)
    index = next(i for i in range(50) if env.kind_of("test", i) == "two_hop")
    task = env.make_task("test", index)
    (first,) = [one.text for one in env.passages(task)[1] if one.id == task.gold_ids[0]]
    actions = Action(SEARCH, (first,)), Action(ANSWER, "no idea")  # the second article is not shown
    says = Says([PROTOCOL.render_turn(action, "So.") for action in actions])
    episode = play_episode(env, says, PROTOCOL, split="test", index=index)
    (table,) = env.draw_episode(episode)
    assert isinstance(table, Table) and table.columns == ("hop", "article", "what it says", "shown")
    texts = {passage.id: passage.text for passage in env.passages(episode.task)[1]}
    assert [tuple(row[:2]) for row in table.rows] == [*enumerate(episode.task.gold_ids, 1)]
    for (_, name, text, _), gold in zip(table.rows, episode.task.gold_ids, strict=True):
        assert name == gold and str(text).rstrip("…") == texts[gold][: len(str(text).rstrip("…"))]
    assert [row[3] for row in table.rows] == ["in turn 1", "never"]
