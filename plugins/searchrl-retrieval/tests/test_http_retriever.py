"""The retriever `http` against servers on this machine: order, batches, failures, keys."""

from __future__ import annotations

import re
from typing import Any

import pytest
from retrieval_servers import Asked, Odd, documents, odd_server
from searchrl_retrieval.http.client import HttpRetriever

from searchrl import ConfigError, RetrieverFailure
from searchrl.contracts import StoredRetriever

KEY = "sk-secret-0123"


def answer(body: Any) -> Odd:
    """As a stock server does."""
    return Odd(body={"result": documents(*body["queries"], k=body["topk"])})


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)


def ids(retriever: HttpRetriever, queries: list[str], k: int = 1) -> list[list[str]]:
    return [[passage.id for passage in found] for found in retriever.search(queries, k)]


def failure_of(odd: Odd, **settings: Any) -> tuple[str, list[Asked]]:
    """What is said of a server that always answers so, and what it was asked."""
    with odd_server(lambda body: odd) as (url, asked):
        retriever = HttpRetriever((), url=url, **settings)
        with pytest.raises(RetrieverFailure) as error:
            retriever.search(["q"], 1)
    return str(error.value), asked


def test_queries_are_split_and_their_order_is_kept() -> None:
    queries = [f"q{i}" for i in range(11)]
    with odd_server(answer) as (url, asked):
        found = ids(HttpRetriever((), url=url, batch_size=4), queries, 2)
    assert found == [[f"{query}/0", f"{query}/1"] for query in queries]
    assert [one.body["queries"] for one in asked] == [queries[:4], queries[4:8], queries[8:]]
    assert all(one.body["return_scores"] and one.body["topk"] == 2 for one in asked)


def test_nothing_is_sent_for_nothing() -> None:
    with odd_server(answer) as (url, asked):
        retriever = HttpRetriever((), url=url)
        assert retriever.search([], 3) == []
        assert retriever.search(["q"], 0) == [[]] and retriever.search([" ", ""], 3) == [[], []]
        assert asked == []
        assert ids(retriever, ["", "a", " ", "b"]) == [[], ["a/0"], [], ["b/0"]]
    assert [one.body["queries"] for one in asked] == [["a", "b"]]


def test_any_text_of_a_model_is_a_query() -> None:
    with odd_server(answer) as (url, asked):
        retriever = HttpRetriever((), url=url, max_query_chars=10)
        retriever.search(["x" * 1000, "half \ud800 pair", "\x00", "学位"], 1)
    assert asked[0].body["queries"] == ["x" * 10, "half ? pai", "\x00", "学位"]


@pytest.mark.parametrize(
    ("odd", "said", "num_asked"),
    [
        (Odd(500, {"detail": "the index is gone"}), r"the index is gone.*\(3 times\)", 3),
        (Odd(404), "answered 404.*look at the address", 1),
        (Odd(422, {"detail": "topk"}), "answered 422.*topk", 1),
        (Odd(302, headers={"Location": "http://evil.example"}), "answered 302", 1),
        (Odd(200, b"<html>"), "sent no JSON: <html>", 1),
        (Odd(200, {"result": []}), "0 results for 1 queries", 1),
        (Odd(200, {"result": None}), "sent no", 1),
        (Odd(200, {"detail": "x" * 100_000}), "sent no", 1),
    ],
)
def test_a_failure_is_a_failure_and_never_an_empty_result(
    odd: Odd, said: str, num_asked: int
) -> None:
    text, asked = failure_of(odd)
    assert re.search(said, text) and len(text) < 600
    assert len(asked) == num_asked


def test_the_key_comes_from_the_environment_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEARCH_KEY", f"{KEY}\n")
    with odd_server(answer) as (url, asked):
        HttpRetriever((), url=url, key_env="SEARCH_KEY").search(["q"], 1)
        HttpRetriever((), url=url).search(["q"], 1)
        monkeypatch.setenv("SEARCH_KEY", "Basic abc=")
        HttpRetriever((), url=url, key_env="SEARCH_KEY").search(["q"], 1)
    sent = [one.headers.get("authorization") for one in asked]
    assert sent == [f"Bearer {KEY}", None, "Basic abc="]
    monkeypatch.setenv("SEARCH_KEY", KEY)
    text, _ = failure_of(Odd(401, {"detail": f"wrong: {KEY}"}), key_env="SEARCH_KEY")
    assert re.search(r"wrong: \[key\].*retriever\.key_env", text) and KEY not in text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": f"http://h/retrieve?key={KEY}"}, r"is no address.*retriever\.key_env"),
        ({"url": "http://h/retrieve", "key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY.*is not set"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        HttpRetriever((), **settings)
    assert KEY not in str(error.value)


def test_its_passages_are_elsewhere() -> None:
    retriever = HttpRetriever((), url="http://localhost:1/retrieve")
    assert isinstance(retriever, StoredRetriever) and retriever.stored(["a"]) is None
