"""The environment `multihop`: its almanac, its scripted policies, and what these may answer."""

from typing import Any

import pytest
from playing import PROTOCOL, Played, play

from searchrl.core.episode import Passage, Task
from searchrl.envs.corpus import MultihopEnv
from searchrl.envs.reading import UNKNOWN, find_options, read_answer
from searchrl.envs.scripts import (
    Shown,
    make_no_search,
    make_one_search,
    make_oracle_hop,
    make_two_search,
    next_query,
)
from searchrl.retrieval.ablations import EmptyRetriever, RandomRetriever
from searchrl.retrieval.bm25 import BM25Retriever
from searchrl.retrieval.indexes import IndexCache

SCRIPTS = {
    "no_search": make_no_search,
    "one_search": make_one_search,
    "two_search": make_two_search,
    "oracle_hop": make_oracle_hop,
}


def make_multihop(**settings: Any) -> MultihopEnv:
    return MultihopEnv(**{"protocol": PROTOCOL, "retriever": BM25Retriever} | settings)


def play_all(env: MultihopEnv, script: str, limit: int = 1000) -> list[Played]:
    count = min(limit, env.num_tasks("test"))
    return [play(env, SCRIPTS[script], split="test", index=i) for i in range(count)]


def share(played: list[Played]) -> tuple[float, float]:
    return (
        sum(p.reward for p in played) / len(played),
        sum(p.signals["gold_shown"] for p in played) / len(played),
    )


def test_each_search_shows_more_and_the_oracle_shows_all() -> None:
    env = make_multihop(retriever=IndexCache(BM25Retriever))
    figures = {name: share(play_all(env, name)) for name in SCRIPTS}
    assert figures["no_search"] == (0.0, 0.0)
    assert 0.4 < figures["one_search"][1] < figures["two_search"][1] < 1.0
    assert 0.0 < figures["one_search"][0] < figures["two_search"][0] < 0.8
    assert figures["oracle_hop"] == (1.0, 1.0)


@pytest.mark.parametrize("retriever", [RandomRetriever, EmptyRetriever])
def test_without_evidence_no_policy_answers_right(retriever: Any) -> None:
    """The expert of `corpus` stated the gold answer whatever it was shown."""
    env = make_multihop(retriever=IndexCache(retriever))
    for name in SCRIPTS:
        em, shown = share(play_all(env, name))
        assert em <= 0.02 and shown < 0.1, name


def task_of(*gold: str, answers: tuple[str, ...] = ("Ida Veen",)) -> Task:
    return Task("t", "test", 0, "Who?", answers, gold_ids=gold)


LIGHT = Passage("a", "Skarn Light was built by IDA VEEN.", "Skarn Light")
FERRY = Passage("b", "The Petrel is a ferry.", "Petrel")


def test_a_gold_answer_is_stated_only_if_it_was_shown() -> None:
    shown = Shown()
    assert shown.gold_answer(task_of()) == UNKNOWN
    shown.add([LIGHT])
    assert shown.gold_answer(task_of("a")) == "Ida Veen"
    assert shown.gold_answer(task_of("a", "b")) == UNKNOWN
    assert shown.gold_answer(task_of("a", answers=("yes",))) == "yes"
    # Nobody knows what is gold: then the answer itself must stand there, as whole words.
    assert shown.gold_answer(task_of()) == "Ida Veen"
    assert shown.gold_answer(task_of(answers=("Ida Ve",))) == UNKNOWN
    assert shown.gold_answer(task_of(answers=("Petrel", "Ida Veen"))) == "Ida Veen"
    shown.add([FERRY])
    assert shown.gold_answer(task_of("a", "b")) == "Ida Veen" and shown.last == (FERRY,)
    shown.add([])
    assert shown.last == (FERRY,) and len(shown.passages) == 2


@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("Which film came out first, Big Sky or The Tin Man?", ("Big Sky", "The Tin Man")),
        ("Which came first Arthur's Magazine or First for Women?",
         ("Arthur's Magazine", "First for Women")),
        ("Who is the mother of the king or queen?", None),
    ],
)  # fmt: skip
def test_options_of_a_question(question: str, options: tuple[str, str] | None) -> None:
    assert find_options(question) == options


OLD = Passage("o", "Big Sky is a 1952 film.", "Big Sky")
NEW = Passage("n", "The Tin Man is a 1983 film by Ann Low.", "The Tin Man")
ANN = Passage("l", "Ann Low was born on 3 May 1940 in Lindry. She had 7 cats.", "Ann Low")


@pytest.mark.parametrize(
    ("question", "passages", "answer"),
    [
        ("Which film came out first, Big Sky or The Tin Man?", [NEW, OLD], "Big Sky"),
        ("Which film was released later, Big Sky or The Tin Man?", [NEW, OLD], "The Tin Man"),
        ("Which film came out first, Big Sky or The Tin Man?", [OLD], UNKNOWN),
        ("Are Big Sky and The Tin Man both films?", [OLD, NEW], "no"),
        ("When was Ann Low born?", [NEW, ANN], "3 May 1940"),
        ("Where was Ann Low born?", [ANN], "Lindry"),
        ("How many cats had Ann Low?", [ANN], "7"),
        ("When was Ann Low born?", [FERRY], UNKNOWN),
    ],
)
def test_reading_by_matching_words(question: str, passages: list[Passage], answer: str) -> None:
    assert read_answer(question, passages) == answer


def test_second_query_is_a_bridge_or_the_thing_that_is_missing() -> None:
    asked = "In which town was the director of The Tin Man born?"
    assert next_query(asked, [FERRY, NEW]).startswith("Ann Low")
    assert next_query("Which came first, Big Sky or The Tin Man?", [OLD]) == "The Tin Man"
    assert next_query(asked, []) == "" and next_query("who?", [FERRY]) == ""
