"""A policy that is loaded once and plays tasks of several configurations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import succeed

from searchrl import open_player
from searchrl.contracts import Passage, Retriever
from searchrl.engine.rollout.guarded import GuardedRetrievers
from searchrl.retrieval.recorded import count_searches
from searchrl.run_folder import Run


def test_a_player_builds_an_index_once(monkeypatch: pytest.MonkeyPatch) -> None:
    build, built = GuardedRetrievers.__call__, list[int]()

    def count(self: GuardedRetrievers, passages: Sequence[Passage]) -> Retriever:
        built.append(len(passages))
        return build(self, passages)

    monkeypatch.setattr(GuardedRetrievers, "__call__", count)
    with open_player({"env": "regulations", "policy": "scripted"}) as player:
        for instruction in ("Say hello.", "Say hello.", "Say goodbye."):
            changes = {"protocol": {"instruction": instruction}}
            player.play(changes, split="train", indices=[5, 3])
            assert len(built) == 2  # a corpus for each task
        player.play({"env": {"world_seed": 3}}, split="train", indices=[5])
        assert len(built) == 3


def test_a_player_plays_tasks_by_number_under_changed_settings() -> None:
    with open_player({"env": "regulations", "policy": "scripted"}) as player:
        changes = {"protocol": {"instruction": "Say hello."}}
        played = player.play(changes, split="train", indices=[5, 3]).rollouts
        (plain,) = player.play(split="train", indices=[5]).rollouts
    assert [rollout.task.index for rollout in played] == [5, 3]
    assert [rollout.world.protocol.instruction for rollout in played] == ["Say hello."] * 2
    assert plain.world.protocol.instruction != "Say hello."
    assert player.traffic is None


def test_a_player_counts_its_own_searches_alone(tmp_path: Path) -> None:
    retriever = {"name": "recorded", "inner": "bm25", "file": str(tmp_path / "found.sqlite")}
    for is_first in (True, False):
        settings = {"env": "regulations", "policy": "scripted", "retriever": retriever}
        with open_player(settings) as player:
            player.play(split="train", indices=[5])
        (counts,) = count_searches({}).values()
        assert (counts["calls"] > 0, counts["saved"] > 0) == (is_first, not is_first)


def test_the_record_of_two_policies_has_the_searches_of_both(tmp_path: Path) -> None:
    words = f"eval --env regulations --policy scripted --num-tasks 3 --run-dir {tmp_path / 'run'}"
    words += f" --retriever recorded --set retriever.file={tmp_path / 'found.sqlite'}"
    succeed(*words.split(), "--set", "retriever.inner=bm25", "--against", "scripted:expert")
    (counts,) = Run.open(tmp_path / "run").summary["searches"].values()
    assert counts["saved"] == counts["calls"] > 0
