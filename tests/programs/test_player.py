"""A policy that is loaded once and plays tasks of several configurations."""

from __future__ import annotations

from searchrl import open_player


def test_a_player_plays_tasks_by_number_under_changed_settings() -> None:
    with open_player({"env": "regulations", "policy": "scripted"}) as player:
        changes = {"protocol": {"instruction": "Say hello."}}
        played = player.play(changes, split="train", indices=[5, 3]).rollouts
        (plain,) = player.play(split="train", indices=[5]).rollouts
    assert [rollout.task.index for rollout in played] == [5, 3]
    assert [rollout.world.protocol.instruction for rollout in played] == ["Say hello."] * 2
    assert plain.world.protocol.instruction != "Say hello."
    assert player.traffic is None
