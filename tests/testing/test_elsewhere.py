"""Calls in another process: what is said of one that takes too long there."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from searchrl.testing import check_plugin
from searchrl.testing.probes import elsewhere

SLOW_ELSEWHERE = """
import os, time
from searchrl import hookimpl
from searchrl.retrieval.bm25 import BM25Retriever

HERE = {pid}

def make(passages):
    if os.getpid() != HERE:
        time.sleep(60)
    return BM25Retriever(passages)

@hookimpl
def register_retrievers(register):
    register("slow", make)
"""


def test_a_process_that_is_late_is_told_from_one_that_finds_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an error of `subprocess`, and the remedy was that for the order of a set."""
    path = tmp_path / "slow.py"
    path.write_text(SLOW_ELSEWHERE.format(pid=os.getpid()), "utf-8")
    hasty = functools.partial(elsewhere.call_elsewhere, timeout_s=3.0)
    monkeypatch.setattr(elsewhere, "call_elsewhere", hasty)
    (report,) = check_plugin(str(path))
    (failed,) = report.failed
    (finding,) = failed.findings
    assert failed.number == "R11"
    assert finding.what.startswith("another process did not do the same within 3 s, imports incl")
    assert "s of the CPU" in finding.what and "other work, check again" in finding.fix
