"""The cache of `exa`: asked once, recorded, replayed without any network, and no key in a file."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from exa_answers import KEY, recorded, searching, sent
from fixtures.openai_server import Fault, OpenAIServer
from searchrl_dag.exa.client import KEY_ENV, ExaRetriever, ReplayMiss

from searchrl import RetrieverFailure
from searchrl.contracts import Passage
from searchrl.retrieval import BM25Retriever
from searchrl.testing import PASSAGES, Status, check_plugin

MODULE = "searchrl_dag"


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network: whatever opens a connection fails the test. There is no key, either."""

    def refuse(*args: Any) -> None:
        raise AssertionError("something is sent")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv(KEY_ENV)


def make(url: str, cache: Path, **settings: Any) -> ExaRetriever:
    return ExaRetriever((), url=url, cache=str(cache), **settings)


def passage(name: str) -> Passage:
    return Passage(name, "t", "", 1.0)


def echo(body: dict[str, Any]) -> Fault:
    return sent({"results": [{"url": body["query"], "text": "t", "author": "x"}]})


def test_what_was_found_once_is_not_asked_again(tmp_path: Path) -> None:
    with OpenAIServer(echo) as server:
        for _ in range(2):
            retriever = make(server.url, tmp_path / "c.sqlite")
            assert retriever.search(["a", "b", "a"], 1) == [[passage(one)] for one in "aba"]
        assert len(server.bodies) == 2
        # Another number of results, or another category, is another question.
        retriever.search(["a"], 2)
        make(server.url, tmp_path / "c.sqlite", category="news").search(["a"], 1)
    assert len(server.bodies) == 4
    assert (tmp_path / "c.sqlite").stat().st_mode & 0o077 == 0
    assert KEY.encode() not in (tmp_path / "c.sqlite").read_bytes()
    with sqlite3.connect(tmp_path / "c.sqlite") as database:
        rows = [json.loads(text) for (text,) in database.execute("SELECT reply FROM replies")]
    assert len(rows) == 4 and all(row["asked"] in server.bodies for row in rows)
    for row in rows:
        assert row["answer"] == {"results": [{"url": row["asked"]["query"], "text": "t"}]}


def test_rollouts_that_ask_the_same_at_the_same_time_ask_once(tmp_path: Path) -> None:
    with OpenAIServer(echo, delay_s=0.1) as server:
        retriever = make(server.url, tmp_path / "c.sqlite")
        threads = [threading.Thread(target=retriever.search, args=(["a"], 1)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.bodies) == 1


def test_a_recorded_cache_answers_without_network_and_key_and_a_miss_is_a_failure_that_says_so(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    cache = tmp_path / "recorded.sqlite"
    queries = ["skarn", "", "harbour"]
    with OpenAIServer(recorded) as server:
        found = make(server.url, cache, category="news").search(queries, 3)
    assert found[0] and found[2]
    written = cache.read_bytes()
    cache.chmod(0o400)
    request.getfixturevalue("cut_off")
    replayed = make(server.url, cache, category="news", replay=True)
    assert replayed.search(queries, 3) == found
    other = make(server.url, cache, category="research paper", replay=True)
    for retriever, query, k in ((replayed, "x", 3), (replayed, "skarn", 4), (other, "skarn", 3)):
        said = rf"has no answer to .*'query': '{query}'.*'numResults': {k}.*replay=false"
        with pytest.raises(ReplayMiss, match=said) as miss:
            retriever.search([query], k)
        assert isinstance(miss.value, RetrieverFailure)
    assert cache.read_bytes() == written
    assert [path.name for path in tmp_path.iterdir()] == [cache.name]


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"answer": {"results": [{}]}}'])
def test_what_is_damaged_is_asked_for_again_and_a_miss_in_replay(
    tmp_path: Path, damage: str
) -> None:
    cache = tmp_path / "c.sqlite"

    def spoil() -> None:
        with sqlite3.connect(cache) as database:
            database.execute("UPDATE replies SET reply = ?", (damage,))

    with OpenAIServer(echo) as server:
        make(server.url, cache).search(["a"], 1)
        spoil()
        with pytest.raises(ReplayMiss):
            make(server.url, cache, replay=True).search(["a"], 1)
        assert make(server.url, cache).search(["a"], 1) == [[passage("a")]]
        assert make(server.url, cache, replay=True).search(["a"], 1) == [[passage("a")]]
    assert len(server.bodies) == 2


@pytest.mark.thorough
def test_it_conforms_where_exa_does(tmp_path: Path) -> None:
    with OpenAIServer(searching(BM25Retriever(PASSAGES))) as server:
        settings = {"url": server.url, "cache": str(tmp_path / "c.sqlite")}
        (report,) = check_plugin("exa", kind="retriever", settings=settings, plugins=[MODULE])
    assert report.is_good, report.failed
    skipped = {one.number for one in report.results if one.status is Status.NOT_APPLICABLE}
    assert skipped == {"R4", "R8"}, "its passages are elsewhere"
