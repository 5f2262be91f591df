"""Indexes are built before the clock of any episode runs, with progress, and the corpus contracts.

A build takes longer here than an episode may: nothing but the clock can tell the difference.
"""

from pathlib import Path
from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.errors import RetrieverFailure
from searchrl.plugins import load_plugins
from searchrl.programs.evaluate import evaluate
from searchrl.retrieval import progress

SLOW = """
import time

from searchrl.hookspecs import hookimpl
from searchrl.retrieval.bm25 import BM25Retriever

class Slow(BM25Retriever):
    def __init__(self, passages):
        time.sleep(1.6)
        super().__init__(passages)

class Broken(BM25Retriever):
    def __init__(self, passages):
        raise OSError("no space left")

@hookimpl
def register_retrievers(register):
    register("slow", Slow)
    register("broken", Broken)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    path = tmp_path / "slow_index.py"
    path.write_text(SLOW, "utf-8")
    return str(path)


def settings(plugin: str, retriever: str) -> dict[str, Any]:
    return {
        "env": "corpus",
        "policy": "scripted",
        "retriever": retriever,
        "plugins": [plugin],
        "rollout": {"env_timeout_s": 1.0},
        "eval": {"num_tasks": 2},
    }


def test_no_episode_pays_for_an_index_that_takes_longer_than_an_episode_may(plugin: str) -> None:
    result = evaluate(settings(plugin, "slow"))
    failures = [rollout.episode.failure for rollout in result.rollouts]
    assert failures == [None, None]
    assert all(rollout.episode.passages for rollout in result.rollouts)


def test_retriever_that_cannot_be_made_ends_the_program_before_any_episode(plugin: str) -> None:
    with pytest.raises(RetrieverFailure, match="could not be made of .* OSError: no space left"):
        evaluate(settings(plugin, "broken"))


def test_indexes_are_built_once_and_progress_is_told(
    plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    registry = load_plugins([plugin], strict=True)
    (world,) = make_worlds(build_config(settings(plugin, "bm25")), registry)
    told: list[tuple[str, int, int]] = []
    world.build_indexes(lambda *seen: told.append(seen))
    ends = {(doing, done) for doing, done, total in told if done == total > 0}
    assert {doing for doing, _ in ends} == {"reading words", "counting words"}
    before = len(told)
    world.build_indexes(lambda *seen: told.append(seen))
    assert len(told) == before
