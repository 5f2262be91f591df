"""What `exa` keeps: asked once, recorded, replayed without any network, and no key in any file."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from exa_server import KEY, Sent, exa_server, recorded, searching
from searchrl_dag.exa.client import KEY_ENV, ExaRetriever, ReplayMiss

import searchrl
from searchrl import RetrieverFailure
from searchrl.contracts import Passage
from searchrl.retrieval import BM25Retriever
from searchrl.testing import PASSAGES, Status, check_plugin

MODULE = "searchrl_dag"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)


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


def echo(body: dict[str, Any]) -> Sent:
    return Sent({"results": [{"url": body["query"], "text": "t"}]})


def test_what_was_found_once_is_not_asked_again(tmp_path: Path) -> None:
    with exa_server(echo) as (url, asked):
        for _ in range(2):
            retriever = make(url, tmp_path / "c.sqlite")
            assert retriever.search(["a", "b", "a"], 1) == [
                [passage("a")], [passage("b")], [passage("a")],
            ]  # fmt: skip
        assert len(asked) == 2
        # Another number of results, or another category, is another question.
        retriever.search(["a"], 2)
        make(url, tmp_path / "c.sqlite", category="news").search(["a"], 1)
    assert len(asked) == 4
    assert (tmp_path / "c.sqlite").stat().st_mode & 0o077 == 0


def test_rollouts_that_ask_the_same_at_the_same_time_ask_once(tmp_path: Path) -> None:
    with exa_server(lambda body: echo(body)._replace(delay_s=0.1)) as (url, asked):
        retriever = make(url, tmp_path / "c.sqlite")
        threads = [threading.Thread(target=retriever.search, args=(["a"], 1)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(asked) == 1


def test_a_recorded_cache_answers_without_network_and_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    cache = tmp_path / "recorded.sqlite"
    queries = ["skarn", "", "harbour"]
    with exa_server() as (url, _):
        found = make(url, cache, category="news").search(queries, 3)
    assert found[0] and found[2]
    written = cache.read_bytes()
    cache.chmod(0o400)
    request.getfixturevalue("cut_off")
    replayed = make(url, cache, category="news", replay=True)
    assert replayed.search(queries, 3) == found
    assert cache.read_bytes() == written
    assert [path.name for path in tmp_path.iterdir()] == [cache.name]


@pytest.mark.parametrize(
    ("query", "k", "settings"),
    [("other", 3, {}), ("skarn", 4, {}), ("skarn", 3, {"category": "research paper"})],
)
def test_a_miss_in_replay_is_a_failure_that_says_so(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    query: str,
    k: int,
    settings: dict[str, Any],
) -> None:
    with exa_server() as (url, _):
        make(url, tmp_path / "c.sqlite", category="news").search(["skarn"], 3)
    request.getfixturevalue("cut_off")
    settings = {"category": "news", "replay": True, **settings}
    retriever = make(url, tmp_path / "c.sqlite", **settings)
    with pytest.raises(ReplayMiss, match="recorded cache .*has no answer to.*replay=false") as miss:
        retriever.search([query], k)
    assert f"'query': '{query}'" in str(miss.value) and f"'numResults': {k}" in str(miss.value)
    assert isinstance(miss.value, RetrieverFailure)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"answer": {"results": [{}]}}'])
def test_what_is_damaged_is_asked_for_again_and_a_miss_in_replay(
    tmp_path: Path, damage: str
) -> None:
    cache = tmp_path / "c.sqlite"

    def spoil() -> None:
        with sqlite3.connect(cache) as database:
            database.execute("UPDATE replies SET reply = ?", (damage,))

    with exa_server(echo) as (url, asked):
        make(url, cache).search(["a"], 1)
        spoil()
        with pytest.raises(ReplayMiss):
            make(url, cache, replay=True).search(["a"], 1)
        assert make(url, cache).search(["a"], 1) == [[passage("a")]]
        assert make(url, cache, replay=True).search(["a"], 1) == [[passage("a")]]
    assert len(asked) == 2


def test_a_cache_says_what_was_asked_and_holds_no_key(tmp_path: Path) -> None:
    with exa_server() as (url, _):
        make(url, tmp_path / "c.sqlite", category="research paper").search(["llms"], 1)
    with sqlite3.connect(tmp_path / "c.sqlite") as database:
        ((text,),) = database.execute("SELECT reply FROM replies").fetchall()
    kept = json.loads(text)
    assert kept["asked"]["query"] == "llms" and kept["asked"]["category"] == "research paper"
    assert kept["answer"]["results"][0]["title"].startswith("A Comprehensive")
    assert KEY.encode() not in (tmp_path / "c.sqlite").read_bytes()


# In programs.


def settings_of(url: str, cache: Path, **retriever: Any) -> dict[str, Any]:
    """An evaluation whose every episode searches."""
    return {
        "env": "corpus",
        "policy": "scripted",
        "plugins": [MODULE],
        "retriever": {
            "name": "exa",
            "url": url,
            "cache": str(cache),
            "max_retries": 0,
            **retriever,
        },
        "eval": {"num_tasks": 4, "forced": False},
        "rollout": {"max_failure_frac": 1.0},
    }


def test_a_replayed_evaluation_is_the_recorded_one(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with exa_server(lambda body: recorded({**body, "category": "news"})) as (url, _):
        whole = searchrl.evaluate(settings_of(url, tmp_path / "c.sqlite"))
    request.getfixturevalue("cut_off")
    replayed = searchrl.evaluate(settings_of(url, tmp_path / "c.sqlite", replay=True))
    assert whole.metrics["failed"]["value"] == replayed.metrics["failed"]["value"] == 0

    def told(played: Any) -> list[Any]:
        return [[turn.passages for turn in one.episode.turns] for one in played.rollouts]

    assert told(replayed) == told(whole) and any(any(turns) for turns in told(whole))


@pytest.mark.thorough
def test_it_conforms_where_exa_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with exa_server(searching(BM25Retriever(PASSAGES))) as (url, _):
        settings = {"url": url, "cache": str(tmp_path / "c.sqlite")}
        (report,) = check_plugin("exa", kind="retriever", settings=settings, plugins=[MODULE])
    assert report.is_good, report.failed
    skipped = {one.number for one in report.results if one.status is Status.NOT_APPLICABLE}
    assert skipped == {"R4", "R8"}, "its passages are elsewhere"
