"""The retriever `exa` against a server on this machine: requests, answers, failures, limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from exa_answers import KEY, failing, recorded, searching, sent
from fixtures.openai_server import Fault, OpenAIServer
from searchrl_dag.exa.client import KEY_ENV, ExaRetriever

from searchrl import ConfigError, RetrieverFailure, load_plugins, make_retriever_factory
from searchrl.contracts import Passage
from searchrl.retrieval import BM25Retriever
from searchrl.testing import PASSAGES, Status, check_plugin

MODULE = "searchrl_dag"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)


def make(url: str, **settings: Any) -> ExaRetriever:
    return ExaRetriever((), url=url, **settings)


def test_what_is_sent_is_what_the_interface_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, f"{KEY}\n")
    with OpenAIServer(recorded) as server:
        make(server.url).search([" skarn harbour "], 3)
        make(server.url, category="news", content="text", max_chars=50).search(["x"], 200)
        extra = {"type": "fast", "contents": None, "userLocation": "NO"}
        make(server.url, extra=extra).search(["y"], 1)
    highlights = {"highlights": {"maxCharacters": 1000}}
    text = {"text": {"maxCharacters": 50}}
    assert server.bodies == [
        {"query": "skarn harbour", "type": "auto", "numResults": 3, "contents": highlights},
        {"query": "x", "type": "auto", "numResults": 100, "contents": text, "category": "news"},
        {"query": "y", "type": "fast", "numResults": 1, "userLocation": "NO"},
    ]
    assert {one["authorization"] for one in server.headers} == {f"Bearer {KEY}"}


def test_excerpts_become_passages_named_by_their_page_else_its_text_or_its_title() -> None:
    with OpenAIServer(recorded) as server:
        (found,) = make(server.url, category="research paper").search(["llms"], 5)
        (without,) = make(server.url, category="news").search(["skarn"], 5)
        (first,) = make(server.url, category="news", max_chars=11).search(["skarn"], 1)
    text = "Such requirements have limited their adoption... … They need much memory."
    paper = "https://arxiv.org/pdf/2307.06435.pdf"
    title = "A Comprehensive Overview of Large Language Models"
    assert found == [Passage(paper, f"[2023-11-16] {text}", title, 1.0)]
    harbour = "The harbour of Skarn reopened on Monday."
    assert without == [
        Passage("https://news.example/harbour", harbour, "", 1.0),
        Passage("https://news.example/titled", "", "Ferry delayed", 0.5),
    ]
    assert [passage.text for passage in first] == ["The harbour"]


def test_nothing_is_sent_for_nothing_equal_queries_are_one_call_and_any_text_is_a_query() -> None:
    def echo(body: dict[str, Any]) -> Fault:
        return sent({"results": [{"url": body["query"], "text": "t"}]})

    with OpenAIServer(echo) as server:
        retriever = make(server.url, max_query_chars=10)
        assert retriever.search([], 3) == [] and retriever.search(["", " "], 3) == [[], []]
        assert retriever.search(["a"], 0) == [[]] and server.bodies == []
        found = retriever.search(["a", "", "b", " a ", "c"], 1)
        assert [[p.id for p in one] for one in found] == [["a"], [], ["b"], ["a"], ["c"]]
        retriever.search(["x" * 1000, "half \ud800 pair", "\x00", "学位"], 1)
    asked = [body["query"] for body in server.bodies]
    assert sorted(asked[:3]) == ["a", "b", "c"]
    assert {*asked[3:]} == {"x" * 10, "half � pai", "\x00", "学位"}


def test_queries_of_one_search_are_asked_at_the_same_time_but_not_too_many() -> None:
    with OpenAIServer(recorded, delay_s=0.1) as server:
        make(server.url, concurrency=3).search([f"q{i}" for i in range(9)], 1)
    assert len(server.bodies) == 9 and server.most_at_once == 3


@pytest.mark.parametrize(
    ("said", "text", "num_asked"),
    [
        (failing(500), r"Internal server error.*\(4 times\)", 4),
        (failing(429), r"answered 429.*rate limit exceeded.*\(4 times\)", 4),
        (failing(400), "INVALID_REQUEST_BODY.*retriever.category", 1),
        (failing(401), f"INVALID_API_KEY.*environment variable {KEY_ENV}", 1),
        (failing(402), "NO_MORE_CREDITS.*credit of the account", 1),
        (failing(403), "PROHIBITED_CONTENT", 1),
        (sent("<html>"), "sent no JSON: <html>", 1),
        (sent({"results": None}), "Exa sent no .*results", 1),
        (sent({"error": f"echo {KEY}", "x": "y" * 9999}), r"answered 200.*\[key\].*\(4 times\)", 4),
        (sent([]), "Exa sent no .*results", 1),
        (sent({"results": ["x"]}), "Exa sent no result: 'x'", 1),
        (sent({"results": [{"title": "t"}]}), "without an address", 1),
        (sent({"results": [{"url": "u", "text": 3}]}), "a text that is no text", 1),
        (sent({"results": [{"url": "u", "highlights": [3]}]}), "highlights that are no texts", 1),
    ],
)
def test_a_failure_is_a_failure_and_never_an_empty_result(
    said: Fault, text: str, num_asked: int
) -> None:
    with OpenAIServer(lambda body: said) as server, pytest.raises(RetrieverFailure) as error:
        make(server.url).search(["q"], 1)
    found = str(error.value)
    assert re.match("retriever exa: ", found) and re.search(text, found, re.DOTALL), found
    assert len(found) < 700 and len(server.bodies) == num_asked


@pytest.mark.parametrize(
    ("key", "settings", "said"),
    [
        (None, {}, f"{KEY_ENV} is not set.*replay what the retriever 'recorded' has kept"),
        ("two\nlines", {}, "holds no key"),
        (KEY, {"url": f"https://api.exa.ai/search?key={KEY}"}, "is no address"),
        (KEY, {"url": "api.exa.ai"}, "is no address"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    key: str | None, settings: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_ENV) if key is None else monkeypatch.setenv(KEY_ENV, key)
    with pytest.raises((ConfigError, ValueError), match=said) as error:
        ExaRetriever((), **settings)
    assert KEY not in str(error.value) and "two" not in str(error.value)


def test_what_is_recorded_holds_no_key_and_is_replayed_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, file = load_plugins([MODULE]), tmp_path / "found.sqlite"

    def search(**settings: Any) -> list[list[Passage]]:
        parts = {"inner": {"name": "exa", "url": server.url}, "file": str(file), **settings}
        return make_retriever_factory(registry, "recorded", parts)(()).search(["skarn", ""], 3)

    with OpenAIServer(recorded) as server:
        found = search()
    assert KEY.encode() not in file.read_bytes()
    monkeypatch.delenv(KEY_ENV)
    assert search(replay=True) == found and len(server.bodies) == 1


@pytest.mark.thorough
def test_it_conforms_where_exa_does() -> None:
    with OpenAIServer(searching(BM25Retriever(PASSAGES))) as server:
        settings = {"url": server.url}
        (report,) = check_plugin("exa", kind="retriever", settings=settings, plugins=[MODULE])
    assert report.is_good, report.failed
    skipped = {one.number for one in report.results if one.status is Status.NOT_APPLICABLE}
    assert skipped == {"R4", "R8"}, "its passages are elsewhere"
