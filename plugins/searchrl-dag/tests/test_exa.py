"""The retriever `exa` against a server on this machine: requests, answers, failures, limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exa_server import KEY, Log, Sent, exa_server, failing, recorded
from searchrl_dag.exa.client import KEY_ENV, ExaRetriever

from searchrl import ConfigError, RetrieverFailure
from searchrl.contracts import Passage


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, f"{KEY}\n")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)


def make(url: str, **settings: Any) -> ExaRetriever:
    return ExaRetriever((), url=url, **{"cache": "off", **settings})


def failure_of(answer: Callable[[dict[str, Any]], Sent] | Sent, **settings: Any) -> tuple[str, Log]:
    """What is said of a server that answers so, and what it was asked."""
    said = answer if callable(answer) else lambda body: answer
    with exa_server(said) as (url, asked), pytest.raises(RetrieverFailure) as error:
        make(url, **settings).search(["q"], 1)
    return str(error.value), asked


def test_what_is_sent_is_what_the_interface_says() -> None:
    with exa_server() as (url, asked):
        make(url).search([" skarn harbour "], 3)
        make(url, category="news", content="text", max_chars=50).search(["x"], 200)
        make(url, extra={"type": "fast", "contents": None, "userLocation": "NO"}).search(["y"], 1)
    assert [one.body for one in asked] == [
        {
            "query": "skarn harbour",
            "type": "auto",
            "numResults": 3,
            "contents": {"highlights": {"maxCharacters": 1000}},
        },
        {
            "query": "x",
            "type": "auto",
            "numResults": 100,
            "contents": {"text": {"maxCharacters": 50}},
            "category": "news",
        },
        {"query": "y", "type": "fast", "numResults": 1, "userLocation": "NO"},
    ]
    assert {one.path for one in asked} == {"/search"}
    assert {one.headers["authorization"] for one in asked} == {f"Bearer {KEY}"}


def test_excerpts_become_passages_named_by_their_page() -> None:
    with exa_server() as (url, _):
        (found,) = make(url, category="research paper").search(["llms"], 5)
    text = "Such requirements have limited their adoption... … They need much memory."
    paper = "https://arxiv.org/pdf/2307.06435.pdf"
    title = "A Comprehensive Overview of Large Language Models"
    assert found == [Passage(paper, f"[2023-11-16] {text}", title, 1.0)]


def test_a_page_without_excerpts_shows_its_text_and_one_without_both_its_title() -> None:
    with exa_server() as (url, _):
        (found,) = make(url, category="news").search(["skarn"], 5)
        (first,) = make(url, category="news", max_chars=11).search(["skarn"], 1)
    assert found == [
        Passage(
            "https://news.example/harbour", "The harbour of Skarn reopened on Monday.", "", 1.0
        ),
        Passage("https://news.example/titled", "", "Ferry delayed", 0.5),
    ]
    assert [passage.text for passage in first] == ["The harbour"]


def test_nothing_is_sent_for_nothing_and_equal_queries_are_one_call() -> None:
    with exa_server(lambda body: Sent({"results": [{"url": body["query"], "text": "t"}]})) as (
        url,
        asked,
    ):
        retriever = make(url)
        assert retriever.search([], 3) == [] and retriever.search(["", " "], 3) == [[], []]
        assert retriever.search(["a"], 0) == [[]] and asked == []
        found = retriever.search(["a", "", "b", " a ", "c"], 1)
        assert [[p.id for p in one] for one in found] == [["a"], [], ["b"], ["a"], ["c"]]
        assert sorted(one.body["query"] for one in asked) == ["a", "b", "c"]


def test_any_text_of_a_model_is_a_query() -> None:
    with exa_server() as (url, asked):
        make(url, max_query_chars=10).search(["x" * 1000, "half \ud800 pair", "\x00", "学位"], 1)
    sent = {one.body["query"] for one in asked}
    assert sent == {"x" * 10, "half � pai", "\x00", "学位"}


def test_queries_of_one_search_are_asked_at_the_same_time_but_not_too_many() -> None:
    with exa_server(lambda body: recorded(body)._replace(delay_s=0.1)) as (url, asked):
        make(url, concurrency=3).search([f"q{i}" for i in range(9)], 1)
    assert len(asked) == 9 and asked.most_at_once == 3


@pytest.mark.parametrize(
    ("sent", "said", "num_asked"),
    [
        (failing(500), r"Internal server error.*\(4 times\)", 4),
        (failing(429), r"answered 429.*rate limit exceeded.*\(4 times\)", 4),
        (failing(400), "INVALID_REQUEST_BODY.*retriever.category", 1),
        (failing(401), f"INVALID_API_KEY.*environment variable {KEY_ENV}", 1),
        (failing(402), "NO_MORE_CREDITS.*credit of the account", 1),
        (failing(403), "PROHIBITED_CONTENT", 1),
        (Sent(b"<html>"), "sent no JSON: <html>", 1),
        (Sent({"results": None}), "Exa sent no .*results", 1),
        (Sent({"error": f"echo {KEY}", "x": "y" * 9999}), "Exa sent no .*results", 1),
        (Sent([]), "Exa sent no .*results", 1),
        (Sent({"results": ["x"]}), "Exa sent no result: 'x'", 1),
        (Sent({"results": [{"title": "t"}]}), "without an address", 1),
        (Sent({"results": [{"url": "u", "text": 3}]}), "a text that is no text", 1),
        (Sent({"results": [{"url": "u", "highlights": [3]}]}), "highlights that are no texts", 1),
    ],
)
def test_a_failure_is_a_failure_and_never_an_empty_result(
    sent: Sent, said: str, num_asked: int
) -> None:
    text, asked = failure_of(sent)
    assert re.match("retriever exa: ", text) and re.search(said, text, re.DOTALL), text
    assert len(text) < 700 and len(asked) == num_asked


def test_without_a_key_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_ENV)
    with pytest.raises(ConfigError, match=f"{KEY_ENV} is not set.*retriever.replay=true"):
        ExaRetriever((), cache="off")
    monkeypatch.setenv(KEY_ENV, "two\nlines")
    with pytest.raises(ConfigError, match="holds no key") as error:
        ExaRetriever((), cache="off")
    assert "two" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": f"https://api.exa.ai/search?key={KEY}"}, "is no address"),
        ({"url": "api.exa.ai"}, "is no address"),
        ({"cache": "off", "replay": True}, "name it: retriever.cache=FILE"),
        ({"cache": "none/such.sqlite", "replay": True}, "such.sqlite' is not there"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    settings: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, ValueError), match=said) as error:
        ExaRetriever((), **settings)
    assert KEY not in str(error.value)
