"""The retriever `http` against servers on this machine: order, batches, failures, keys."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import pytest
from click.testing import CliRunner
from fixtures.openai_server import Fault, OpenAIServer
from retrieval_servers import documents, running, sent
from searchrl_retrieval.http.client import HttpRetriever

from searchrl import ConfigError, RetrieverFailure
from searchrl.cli import main
from searchrl.contracts import StoredRetriever
from searchrl.retrieval import BM25Retriever
from searchrl.testing import PASSAGES, Status, check_plugin

KEY = "sk-secret-0123"
MODULE = "searchrl_retrieval"


def answer(body: Any) -> Fault:
    """As a stock server does."""
    return sent({"result": documents(*body["queries"], k=body["topk"])})


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)


def ids(retriever: HttpRetriever, queries: list[str], k: int = 1) -> list[list[str]]:
    return [[passage.id for passage in found] for found in retriever.search(queries, k)]


def failure_of(said: Fault, **settings: Any) -> tuple[str, int]:
    """The error for a server that always answers so, and the number of requests."""
    with OpenAIServer(lambda body: said) as server:
        retriever = HttpRetriever((), url=server.url, **settings)
        with pytest.raises(RetrieverFailure) as error:
            retriever.search(["q"], 1)
    return str(error.value), len(server.bodies)


def test_queries_are_split_and_their_order_is_kept() -> None:
    queries = [f"q{i}" for i in range(11)]
    with OpenAIServer(answer) as server:
        found = ids(HttpRetriever((), url=server.url, batch_size=4), queries, 2)
    assert found == [[f"{query}/0", f"{query}/1"] for query in queries]
    batches = [queries[:4], queries[4:8], queries[8:]]
    assert server.bodies == [
        {"queries": batch, "topk": 2, "return_scores": True} for batch in batches
    ]


def test_nothing_is_sent_for_nothing_and_any_text_of_a_model_is_a_query() -> None:
    with OpenAIServer(answer) as server:
        retriever = HttpRetriever((), url=server.url, max_query_chars=10)
        assert retriever.search([], 3) == []
        assert retriever.search(["q"], 0) == [[]] and retriever.search([" ", ""], 3) == [[], []]
        assert server.bodies == []
        assert ids(retriever, ["", "a", " ", "b"]) == [[], ["a/0"], [], ["b/0"]]
        retriever.search(["x" * 1000, "half \ud800 pair", "\x00", "学位"], 1)
    fitted = ["x" * 10, "half ? pai", "\x00", "学位"]
    assert [body["queries"] for body in server.bodies] == [["a", "b"], fitted]


@pytest.mark.parametrize(
    ("said", "text", "num_asked"),
    [
        (sent({"detail": "the index is gone"}, 500), r"the index is gone.*\(3 times\)", 3),
        (sent("", 404), "answered 404.*look at the address", 1),
        (sent({"detail": "topk"}, 422), "answered 422.*topk", 1),
        (sent("", 302, Location="http://evil.example"), "answered 302", 1),
        (sent("<html>"), "sent no JSON: <html>", 1),
        (sent({"result": []}), "0 results for 1 queries", 1),
        (sent({"detail": "x" * 100_000}), "sent no", 1),
    ],
)
def test_a_failure_is_a_failure_and_never_an_empty_result(
    said: Fault, text: str, num_asked: int
) -> None:
    found, count = failure_of(said)
    assert re.search(text, found) and len(found) < 600
    assert count == num_asked


def test_the_key_comes_from_the_environment_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEARCH_KEY", f"{KEY}\n")
    with OpenAIServer(answer) as server:
        HttpRetriever((), url=server.url, key_env="SEARCH_KEY").search(["q"], 1)
        HttpRetriever((), url=server.url).search(["q"], 1)
        monkeypatch.setenv("SEARCH_KEY", "Basic abc=")
        HttpRetriever((), url=server.url, key_env="SEARCH_KEY").search(["q"], 1)
    shown = [one.get("authorization") for one in server.headers]
    assert shown == [f"Bearer {KEY}", None, "Basic abc="]
    monkeypatch.setenv("SEARCH_KEY", KEY)
    text, _ = failure_of(sent({"detail": f"wrong: {KEY}"}, 401), key_env="SEARCH_KEY")
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


def test_it_conforms_where_its_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvicorn")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # of the processes of criteria
    with running(BM25Retriever(PASSAGES)) as url:
        settings = {"url": f"{url}/retrieve"}
        (report,) = check_plugin("http", kind="retriever", settings=settings, plugins=[MODULE])
    assert report.is_good, report.failed
    skipped = {one.number for one in report.results if one.status is Status.NOT_APPLICABLE}
    assert skipped == {"R4", "R8"}, "its passages are elsewhere"


def test_commands_search_a_server_without_a_corpus() -> None:
    found = HttpRetriever((), url="http://localhost:1/retrieve")
    assert isinstance(found, StoredRetriever) and found.stored(["a"]) is None
    with OpenAIServer(answer) as server:
        words = ["--plugin", MODULE, "retrieve", "who?", "--retriever", "http", "-k", "1"]
        shown = CliRunner().invoke(main, [*words, "--set", f"retriever.url={server.url}"])
    assert shown.exit_code == 0 and "[who?/0]" in shown.output, shown.output
