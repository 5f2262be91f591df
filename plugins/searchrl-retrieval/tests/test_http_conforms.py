"""The retriever `http` and the criteria of retrievers; and what episodes make of its failures."""

from __future__ import annotations

import os
import sys

import pytest
from click.testing import CliRunner
from retrieval_servers import Odd, odd_server, running

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


def test_commands_search_a_server_without_a_corpus() -> None:
    with odd_server(lambda body: Odd(body={"result": [[DOCUMENT]]})) as (url, _):
        words = ["--plugin", MODULE, "retrieve", "who?", "--retriever", "http"]
        found = CliRunner().invoke(main, [*words, "--set", f"retriever.url={url}"])
    assert found.exit_code == 0 and "[elsewhere]" in found.output, found.output
