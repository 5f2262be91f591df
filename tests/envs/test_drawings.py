"""What the built-in environments draw of an episode."""

from __future__ import annotations

from searchrl.core.drawing import Table
from searchrl.core.episode import ANSWER, SEARCH, Action, Episode
from searchrl.envs.regulations import RegulationsEnv
from searchrl.protocols import ThinkSearchAnswer
from searchrl.retrieval.bm25 import BM25Retriever
from searchrl.testing import Says, play_episode

READS = ThinkSearchAnswer()


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
