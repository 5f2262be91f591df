"""`shards`: which passages of which shard are kept, and what happens if a shard fails."""

from __future__ import annotations

import pytest
from retrieval_servers import TOWN, Gated, running
from searchrl_retrieval.bm25s.kind import make_bm25s
from searchrl_retrieval.shards import ShardsRetriever
from test_hybrid import Fixed, Kept

from searchrl import ConfigError, RetrieverFailure, load_plugins, make_retriever_factory
from searchrl.contracts import Passage, Retriever, RetrieverFactory, StoredRetriever
from searchrl.testing import check_plugin

PACKAGE = "searchrl_retrieval"
CORPUS = tuple(Passage(name, f"text {name}") for name in "abcdef")


def made(*shards: Fixed) -> ShardsRetriever:
    return ShardsRetriever(CORPUS, shards=list(shards))


def ids(retriever: Retriever, k: int = 9, query: str = "q") -> list[str]:
    return [passage.id for passage in retriever.search([query], k)[0]]


def test_the_best_of_all_shards_are_kept_each_once_and_ties_in_the_order_of_the_shards() -> None:
    first, second = Fixed(a=9.0, b=5.0, c=1.0), Fixed(d=7.0, e=5.0, a=4.0)
    assert ids(made(first, second)) == ["a", "d", "b", "e", "c"]
    assert ids(made(second, first), 4) == ["a", "d", "e", "b"]
    assert first.asked == [(["q"], 9), (["q"], 4)]
    assert ids(made(first), 0) == [] and len(first.asked) == 2
    assert made(Kept(), Kept()).stored(["a", "x"]) == [CORPUS[0], None]


def test_a_shard_that_fails_fails_the_search() -> None:
    front = ShardsRetriever(CORPUS, shards=[Fixed(a=1.0), lambda _: Gated(is_open=True)])
    assert ids(front, 1) == ["a"]
    with pytest.raises(RetrieverFailure, match=r"shards\.1: a bad query"):
        ids(front, query="bad")


def test_a_shard_without_scores_fails_the_search() -> None:
    assert ids(made(Fixed(a=1.0, b=0.0), Fixed())) == ["a", "b"]
    with pytest.raises(RetrieverFailure, match=r"shards\.1: every score is 0.*return_scores"):
        ids(made(Fixed(a=1.0), Fixed(b=0.0)))


def test_a_shard_without_passages_is_refused_wherever_it_stands() -> None:
    registry = load_plugins([PACKAGE], entry_points=False)
    server = make_retriever_factory(registry, "http", {"url": "http://localhost:1/retrieve"})
    front: list[RetrieverFactory] = [server, make_bm25s]
    for shards in (front, front[::-1]):
        with pytest.raises(ConfigError, match="nothing to search"):
            ShardsRetriever((), shards=shards).stored([])


def test_they_are_named_in_a_list_and_it_conforms() -> None:
    registry = load_plugins([PACKAGE], entry_points=False)
    for wrong in ([], "bm25s", [{"name": "bm25s", "k2": 1}], ["bm25s", 3]):
        with pytest.raises(ConfigError, match=r"shards|k2"):
            make_retriever_factory(registry, "shards", {"shards": wrong})(CORPUS)
    own = {"shards": ["bm25s", {"name": "bm25s", "k1": 2}]}
    (report,) = check_plugin("shards", kind="retriever", settings=own, plugins=[PACKAGE])
    assert report.is_good, report.failed


def test_servers_of_halves_find_what_is_in_both() -> None:
    pytest.importorskip("uvicorn")
    registry = load_plugins([PACKAGE], entry_points=False)
    with running(make_bm25s(TOWN[:2])) as one, running(make_bm25s(TOWN[2:])) as other:
        named = [{"name": "http", "url": f"{url}/retrieve"} for url in (one, other)]
        front = make_retriever_factory(registry, "shards", {"shards": named})(())
        assert sorted(ids(front, query="library pool")) == ["p0", "p2"]
    assert isinstance(front, StoredRetriever) and front.stored(["p0"]) is None
