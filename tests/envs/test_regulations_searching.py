"""What a search finds in `regulations`: enough for the expert, too little for a careless guess."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from playing import LEVELS, env_of, mean, search, tasks_of

from searchrl.envs.regulations.world.searching import FUNCTION_WORDS, content_words, words_of


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_experts_query_finds_the_article_but_not_always_first(level: str) -> None:
    ranks: dict[str, list[int]] = defaultdict(list)
    for task in tasks_of(level):
        for hop, (gold, query) in enumerate(zip(task.gold_ids, task.meta["queries"], strict=False)):
            assert 1 <= len(query.split()) <= 24
            found = search(env_of(level), task, [query])
            ranks[f"{task.kind}/{hop}"].append(found.index(gold) + 1 if gold in found else 99)
    every = [rank for hop in ranks.values() for rank in hop]
    assert len(every) > 1000 and len(ranks) == 3
    # At `normal` most questions are worded so that they fit another article better.
    least, most = {"easy": (0.60, 0.95), "normal": (0.40, 0.65)}[level]
    assert least <= mean(rank == 1 for rank in every) <= most
    assert all(mean(rank <= 3 for rank in hop) >= 0.98 for hop in ranks.values()), ranks


def test_a_query_is_a_piece_of_its_question_from_a_telling_word_to_another(level: str) -> None:
    lengths = []
    for task in tasks_of(level):
        query, words = task.meta["queries"][0], task.meta["queries"][0].split()
        assert query in task.question, task
        # Whole words: `Ann` would not be a piece of `Anna`.
        assert re.search(rf"(?<![^\W_]){re.escape(query)}(?![^\W_])", task.question), task
        ends = {words[0].casefold(), words[-1].casefold()}
        assert not ends & FUNCTION_WORDS, task
        assert words_of(task.meta["thin_query"]) <= words_of(query), task
        assert task.meta["thin_query"].casefold() not in FUNCTION_WORDS, task
        lengths.append(len(words))
    # Enough words are left out for the query to be another text than the question.
    assert mean(lengths) <= 0.75 * mean(len(task.question.split()) for task in tasks_of(level))


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("How many days can I keep a library book?", "days can I keep a library book"),
        ("Please tell me who runs the chess club on Fridays.", "runs the chess club on Fridays"),
        ("Where's the nurse", "Where's the nurse"),
        ("Who is it?", "Who is it?"),
        ("In which room is the Реnik mime?", "room is the Реnik mime"),
        ("What, at most, is the £ limit?", "limit"),
        ("", ""),
    ],
)
def test_content_words_are_cut_out_of_the_question(question: str, query: str) -> None:
    assert content_words(question) == query
