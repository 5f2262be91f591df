"""The retriever `http` and the criteria of retrievers; and what episodes make of its failures."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from click.testing import CliRunner
from retrieval_servers import Odd, odd_server, running

import searchrl
from searchrl.cli import main
from searchrl.retrieval import BM25Retriever
from searchrl.testing import PASSAGES, Status, check_plugin

MODULE = "searchrl_retrieval"
DOCUMENT = {"document": {"id": "elsewhere", "contents": '"T"\nNothing of use.'}, "score": 1.0}


@pytest.fixture(autouse=True)
def found_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Criteria are checked in processes of their own, too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def test_it_conforms_where_its_server_does() -> None:
    pytest.importorskip("uvicorn")
    with running(BM25Retriever(PASSAGES)) as url:
        settings = {"url": f"{url}/retrieve"}
        (report,) = check_plugin("http", kind="retriever", settings=settings, plugins=[MODULE])
    assert report.is_good, report.failed
    skipped = {one.number for one in report.results if one.status is Status.NOT_APPLICABLE}
    assert skipped == {"R4", "R8"}, "its passages are elsewhere"


def evaluate(url: str) -> Any:
    """The expert of the demo, which searches in every episode."""
    return searchrl.evaluate(
        {
            "env": "corpus",
            "policy": "scripted",
            "plugins": [MODULE],
            "retriever": {"name": "http", "url": url, "max_retries": 0},
            "eval": {"num_tasks": 8, "forced": False},
            "rollout": {"max_failure_frac": 1.0},
        }
    )


def test_episodes_of_a_server_that_fails_are_unscored_and_none_found_nothing() -> None:
    """Some clients tell the model `Search request failed`, and score what it makes of that."""
    asked = 0

    def at_first_not(body: Any) -> Odd:
        nonlocal asked
        asked += 1
        result = [[DOCUMENT] for _ in body["queries"]]
        return Odd(500, {"detail": "down"}) if asked <= 3 else Odd(body={"result": result})

    with odd_server(at_first_not) as (url, _):
        played = evaluate(url)
    failed = played.metrics["failed"]
    assert 0 < failed["value"] < 1 and played.metrics["failed_retrieval"] == failed
    assert played.metrics["unscored"]["value"] == failed["value"]
    rollouts = played.rollouts
    for rollout in rollouts:
        episode = rollout.episode
        if episode.failure is None:
            assert all(turn.passages for turn in episode.turns if turn.action.queries)
        else:
            assert "retriever 'http'" in episode.failure.owner
            assert "answered 500" in episode.failure.message and rollout.reward is None


def test_commands_search_a_server_without_a_corpus() -> None:
    with odd_server(lambda body: Odd(body={"result": [[DOCUMENT]]})) as (url, _):
        words = ["--plugin", MODULE, "retrieve", "who?", "--retriever", "http"]
        found = CliRunner().invoke(main, [*words, "--set", f"retriever.url={url}"])
    assert found.exit_code == 0 and "[elsewhere]" in found.output, found.output
