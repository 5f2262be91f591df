"""What the built-in environments draw of an episode."""

from __future__ import annotations

import gymnasium

from searchrl.core.drawing import Table, Text, find_drawings_problem
from searchrl.core.episode import ACT, ANSWER, SEARCH, Action, Episode
from searchrl.envs.foreign import TextAdapter
from searchrl.envs.regulations import RegulationsEnv
from searchrl.protocols import ThinkSearchAnswer
from searchrl.protocols.act import ThinkAct
from searchrl.retrieval.bm25 import BM25Retriever
from searchrl.testing import Says, play_episode

READS, ACTS = ThinkSearchAnswer(), ThinkAct()


def search(query: str) -> str:
    return READS.render_turn(Action(SEARCH, (query,)), "I look this up.")


def play_two_hop() -> tuple[RegulationsEnv, Episode]:
    """Play a task of two hops with a search that shows the first of its articles alone."""
    env = RegulationsEnv(protocol=READS, retriever=BM25Retriever, topk=1)
    index = next(i for i in range(50) if env.kind_of("test", i) == "two_hop")
    task = env.make_task("test", index)
    (first,) = [one.text for one in env.passages(task)[1] if one.id == task.gold_ids[0]]
    turns = [search(first), READS.render_turn(Action(ANSWER, "no idea"), "A guess.")]
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
    episode = play_episode(env, Says([search("bus")] * 4), READS, split="test", index=index)
    assert not episode.task.gold_ids and env.draw_episode(episode) == []


def play_lake(*moves: str, render_mode: str | None = "ansi") -> tuple[TextAdapter, Episode]:
    inner = gymnasium.make("FrozenLake-v1", is_slippery=False, render_mode=render_mode)
    env = TextAdapter(
        inner, protocol=ACTS, name="lake", prompt="{observation}", max_turns=len(moves)
    )
    turns = [ACTS.render_turn(Action(ACT, move)) for move in moves]
    return env, play_episode(env, Says(turns), ACTS, split="train", index=0)


def test_a_game_with_a_map_is_drawn_move_by_move():
    env, episode = play_lake("right", "sideways", "down")
    (text,) = env.draw_episode(episode)
    assert isinstance(text, Text) and find_drawings_problem([text]) == ""
    beginning, first, second, last = text.text.split("\n\n")
    assert beginning.startswith("the beginning\n[S]FFF\nFHFH")
    assert first.startswith("turn 1: right, reward 0\n") and "S[F]FF" in first
    assert second.startswith("turn 2: 'sideways' is not an action here.")
    assert last == "turn 3: down, reward 0"  # into a hole: nothing came back


def test_a_game_without_a_map_is_read_in_its_turns():
    env, episode = play_lake("right", render_mode=None)
    assert env.draw_episode(episode) == []


def test_a_drawing_of_a_long_game_can_be_stored():
    env, episode = play_lake(*["left"] * 100)
    assert len(episode.turns) == 100
    assert find_drawings_problem(env.draw_episode(episode)) == ""
