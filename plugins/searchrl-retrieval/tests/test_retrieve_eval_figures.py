"""Figures of rankings: what they are by hand and by ir-measures, and what may not change them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("ir_measures")

from judged_toy import QUERIES, ByName, write_beir, write_pool
from searchrl_retrieval.bm25s.kind import make_bm25s
from searchrl_retrieval.evaluation import judging
from searchrl_retrieval.evaluation.collection import read_collection
from searchrl_retrieval.evaluation.judging import compare_all, judge
from searchrl_retrieval.evaluation.measures import measure

from searchrl import PluginError, RetrieverFailure
from searchrl.contracts import Passage
from searchrl.retrieval import BM25Retriever


def test_figures_of_a_ranking_by_hand() -> None:
    """Relevant: a (2) and b (1). Found: x, a, y, b. A question without results counts, too."""
    qrels = {"none": {"a": 1}, "q": {"a": 2, "b": 1, "y": 0}}
    found = measure(qrels, {"q": ["x", "a", "y", "a", "b"]}, [3, 10], has_hops=True)
    assert all(list(of) == ["none", "q"] and of["none"] == 0 for of in found.values())
    best = 2 / math.log2(2) + 1 / math.log2(3)
    assert found["ndcg@10"]["q"] == pytest.approx((2 / math.log2(3) + 1 / math.log2(5)) / best)
    assert found["ndcg@3"]["q"] == pytest.approx(2 / math.log2(3) / best)
    assert found["recall@3"]["q"] == found["support_recall@3"]["q"] == 0.5
    assert found["recall@10"]["q"] == 1
    assert (found["all_gold@3"]["q"], found["all_gold@10"]["q"]) == (0, 1)
    assert found["mrr@3"]["q"] == found["mrr@10"]["q"] == 0.5
    assert found["map@10"]["q"] == pytest.approx((1 / 2 + 2 / 4) / 2)


def test_equal_scores_are_measured_in_the_order_of_the_retriever(tmp_path: Path) -> None:
    """ir-measures sorts equal scores by id; how passages are called must not matter."""
    ids = [f"d{number}" for number in range(1, 7)]
    figures = []
    for seed in range(4):
        shuffled = random.Random(seed).sample(ids, len(ids))
        folder = write_beir(tmp_path / str(seed), dict(zip(ids, shuffled, strict=True)))
        titles = ["Hare", "Beaver", "Lynx", "Otter", "Mole", "Heron"]
        made = {"tied": partial(ByName, titles=titles), "bm25": BM25Retriever}
        judged = judge(read_collection(folder), made, [3])
        figures.append({label: one.metrics for label, one in judged.items()})
    assert all(one == figures[0] for one in figures)
    assert figures[0]["tied"]["ndcg@3"]["value"] > 0.3


def test_differences_are_first_minus_second_on_the_same_questions(tmp_path: Path) -> None:
    collection = read_collection(write_beir(tmp_path / "beir"))
    worst = partial(ByName, titles=["Mole"])
    (found,) = compare_all(judge(collection, {"bm25": BM25Retriever, "worst": worst}, [10]))
    assert (found.first, found.second) == ("bm25", "worst")
    figure = found.figures["ndcg@10"]
    assert figure["n"] == 3 and figure["value"] > 0.5 and figure["low"] > 0


def test_a_question_that_is_a_passage_itself_does_not_find_itself(tmp_path: Path) -> None:
    """As in ArguAna: document q3 is query q3. Document q1 is another text than query q1."""
    folder = write_beir(tmp_path / "beir", {"d1": "q3", "d3": "q1"})
    queries = (folder / "queries.jsonl").read_text("utf-8")
    text = "The otter lives in rivers and eats fish."
    (folder / "queries.jsonl").write_text(queries.replace("who eats fish", text), "utf-8")
    (folder / "qrels" / "test.tsv").write_text("q1\tq1\t1\nq3\td2\t1\n", "utf-8")
    factory = partial(ByName, titles=["Otter", "Beaver", "Heron", "Mole"])
    judged = judge(read_collection(folder), {"one": factory}, [2])["one"]
    assert judged.rankings == {"q1": ["q3", "q1"], "q3": ["q1", "d2"]}
    assert judged.figures["mrr@2"] == {"q1": 0.5, "q3": 0.5}


def test_grades_of_judgements_are_gains_and_floats_are_the_same_grades(tmp_path: Path) -> None:
    """Lynx is judged 2 and Hare 1: the other order has (1 + 2/log2(3)) / (2 + 1/log2(3))."""
    values = []
    for name, titles in (("best", ["Lynx", "Hare"]), ("worse", ["Hare", "Lynx"])):
        folder = write_beir(tmp_path / name)
        qrels = folder / "qrels" / "test.tsv"
        for text in (qrels.read_text(), qrels.read_text().replace("2\n", "2.0\n")):
            qrels.write_text(text)
            factory = partial(ByName, titles=titles)
            judged = judge(read_collection(folder), {"one": factory}, [10])["one"]
            values.append(judged.figures["ndcg@10"]["q2"])
    second = 1 / math.log2(3)
    worse = (1 + 2 * second) / (2 + second)
    assert values == pytest.approx([1, 1, worse, worse], abs=1e-12)


class Broken:
    """Fails as plugins do."""

    def __init__(self, passages: object, fault: object) -> None:
        self.fault = fault

    def search(self, queries: object, k: int) -> object:
        if isinstance(self.fault, Exception):
            raise self.fault
        return self.fault


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (OSError("gone"), RetrieverFailure, "bad failed: it raised OSError: gone"),
        ([[]], PluginError, "expected a list of 3 lists of Passage"),
        ([["d1"]] * 3, PluginError, "a list that holds str; expected Passage"),
    ],
)
def test_a_retriever_that_fails_is_an_error_and_not_a_zero(
    tmp_path: Path, fault: object, error: type[Exception], said: str
) -> None:
    collection = read_collection(write_beir(tmp_path / "beir"))
    with pytest.raises(error, match=said):
        judge(collection, {"bad": partial(Broken, fault=fault)}, [10])


class Slow(ByName):
    """Takes 2 s to be made and 6 s for a batch, and gives more than it was asked for."""

    clock = 1.0
    batches: list[Sequence[str]]

    def __init__(self, passages: Sequence[Passage]) -> None:
        Slow.clock += 2
        Slow.batches = []
        super().__init__(passages, ["Mole", "Beaver", "Lynx", "Hare"])

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        Slow.clock += 6
        Slow.batches.append(queries)
        return super().search(queries, k + 1)


def test_times_are_seconds_to_make_and_milliseconds_of_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "BATCH", 2)
    monkeypatch.setattr(judging, "time", SimpleNamespace(perf_counter=lambda: Slow.clock))
    judged = judge(read_collection(write_beir(tmp_path / "beir")), {"slow": Slow}, [1, 2])["slow"]
    assert (judged.make_s, judged.query_ms) == (2, 4000)  # two batches for 3 queries
    assert Slow.batches == [[*QUERIES.values()][:2], [QUERIES["q3"]]]
    assert judged.rankings["q1"] == ["d6", "d3"] and judged.figures["mrr@2"]["q1"] == 0.5


def test_splits_of_a_pool_are_the_ends_of_its_sources(tmp_path: Path) -> None:
    folder = write_pool(tmp_path / "pool")
    everything = read_collection(folder)
    assert [one.id for one in everything.questions] == ["h1", "h2"] and everything.has_hops
    assert everything.notes == ("questions without a known gold passage, left out: 1",)
    assert [one.id for one in read_collection(folder, "dev").questions] == ["h2"]


def test_a_file_whose_questions_bring_their_paragraphs_is_a_collection(tmp_path: Path) -> None:
    """HotpotQA as its authors publish it: the paragraphs of all questions are the corpus."""
    path = tmp_path / "hotpot_dev.json"
    rows = [
        {"_id": "h1", "question": "who eats fish in rivers", "answer": "otter",
         "context": [["Otter", ["It eats fish."]], ["Heron", ["It eats fish."]]],
         "supporting_facts": [["Otter", 0], ["Heron", 0]]},
        {"_id": "h2", "question": "who digs", "answer": "mole",
         "context": [["Mole", ["It digs tunnels."]], ["Otter", ["It eats fish."]]],
         "supporting_facts": [["Mole", 0]]},
    ]  # fmt: skip
    path.write_text(json.dumps(rows), "utf-8")
    found = read_collection(path)
    assert [passage.title for passage in found.passages] == ["Otter", "Heron", "Mole"]
    assert found.qrels == {"h1": {"Otter": 1, "Heron": 1}, "h2": {"Mole": 1}} and found.has_hops


def test_judged_passages_and_queries_that_are_not_there_are_counted(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "beir")
    with open(folder / "qrels" / "test.tsv", "a", encoding="utf-8") as file:
        file.write("q1\tgone\t1\nq8\td1\t1\nq9\td1\t1\n")
    collection = read_collection(folder)
    assert collection.notes == (
        "judged queries without a text or a relevant passage, left out: 2",
        "judged passages that are not in the corpus, so nothing finds them: 1",
    )
    judged = judge(collection, {"bm25": BM25Retriever}, [10])["bm25"]
    assert judged.figures["recall@10"]["q1"] == 0.5


_SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
_AT_LEAST = {
    "ir/scifact": 0.685,
    "multihop/hotpotqa_distractor_pool": 0.815,
    "multihop/2wikimultihopqa_pool": 0.765,
    "multihop/musique_pool": 0.555,
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", _AT_LEAST)
def test_bm25s_ranks_as_well_as_it_did_and_better_than_the_core(name: str) -> None:
    if not (_SHARED / name).is_dir():
        pytest.skip("the real collections are not here")
    made = {"bm25s": make_bm25s, "bm25": BM25Retriever}
    judged = judge(read_collection(_SHARED / name), made, [10])
    ours, core = (judged[label].metrics["ndcg@10"]["value"] for label in made)
    assert ours >= _AT_LEAST[name] and ours > core
