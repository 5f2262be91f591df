"""Every part of the package and the criteria of its kind."""

from __future__ import annotations

import os
import sys
from typing import Any

import gymnasium
import pytest

from searchrl import load_plugins
from searchrl.testing import Status, check_plugin

MODULE = "searchrl_control"


@pytest.fixture(autouse=True)
def found_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Criteria are checked in processes of their own, too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.mark.parametrize("actions", ["published", "heads"])
def test_the_environment(toy: dict[str, Any], actions: str) -> None:
    settings = {**toy, "actions": actions}
    (report,) = check_plugin("retrieval-control", kind="env", settings=settings, plugins=[MODULE])
    assert report.is_good, report.failed
    skipped = {one.number for one in report.results if one.status is Status.NOT_APPLICABLE}
    assert skipped <= {"E16", "E17"}


def test_the_judged_component() -> None:
    (report,) = check_plugin("list_judge", kind="reward", plugins=[MODULE])
    assert report.is_good, report.failed


def test_the_id_of_gymnasium_is_the_plain_environment_where_plugins_are_loaded(
    toy: dict[str, Any],
) -> None:
    load_plugins([MODULE])  # makes ids of all environments of plugins
    env = gymnasium.make(f"{MODULE}:searchrl/RetrievalControl-v0", **toy)
    assert isinstance(env.action_space, gymnasium.spaces.Discrete)
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1, 0, 0, 0]
