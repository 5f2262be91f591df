"""Shared by these tests: a key for Exa, the core's server, and the path of other processes."""

import os
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
sys.path += [str(REPO / "tests"), *map(str, sorted(REPO.glob("plugins/searchrl-*")))]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Criteria are checked in processes of their own, too. A port may have had a server before."""
    from exa_answers import KEY
    from searchrl_dag.exa import client

    client._shared_server.cache_clear()
    monkeypatch.setenv("EXA_API_KEY", KEY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
