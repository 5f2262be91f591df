"""A wrapper that compacts: another segment begins with its context, and an observation behind."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import pytest
from engine_toy import LIMITS

from searchrl.config import build_config
from searchrl.contracts import COMPACT, Action, Context, Room
from searchrl.core.episode import StopReason
from searchrl.engine.checks.report import State
from searchrl.engine.checks.texts import check_observations, check_stops
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.sampling.scripted import ScriptedGenerator
from searchrl.errors import ConfigError
from searchrl.programs.setup.warnings import ensure_can_learn
from searchrl.runs.stored import read_episode

SEARCH = "<think>a</think>\n<search> mira </search>"
TURNS = (SEARCH, SEARCH, "<answer>no</note>", SEARCH, "<think>b</think>\n<answer> 4 </answer>")


class Noting(gymnasium.Wrapper[Any, Any, Any, Any]):
    stops = ("</note>",)
    context: ClassVar[Any] = Context("In short.", (1, " seen "), "noted")
    rooms: ClassVar[list[Room]] = []

    def measure(self, room: Room) -> None:
        self.rooms.append(room)

    def step(self, action: Any) -> Any:
        if action.endswith("</note>"):
            info = {"action": Action(COMPACT, "a note"), "context": self.context}
            return " Go on. ", 0.0, False, False, info
        return self.env.step(action)


@pytest.fixture
def world(toy_world: Any) -> Any:
    made = toy_world(reward="format", retriever="random", max_turns=9)
    plain, made.compacts = made.make_env, True
    made.make_env = lambda: Noting(plain())
    made.close()  # what was made before is no wrapper
    return made


def play(world: Any, codec: Any, turns: Any = TURNS) -> Rollout:
    talker = SimpleNamespace(act=lambda _, said=iter(turns): next(said))  # noqa: B008
    request = RolloutRequest("g", world, "train", 0, (1,), script=lambda *_: talker)
    return RolloutDriver(ScriptedGenerator(codec), codec, LIMITS).run([request])[0].rollouts[0]


def test_the_policy_reads_the_context_in_place_of_all_before(world: Any, policy: Any) -> None:
    Noting.rooms.clear()
    codec, rollout = policy.renderer, play(world, policy.renderer)
    first, second = rollout.trajectory.segments
    begin = [*codec.render_prompt("", "In short.").ids, *codec.encode_model_text(SEARCH)]
    begin += codec.encode_plain(" seen ") + codec.encode_plain(" Go on. ")
    assert second.prompt == begin and second.reason == "noted"
    assert [room.num_tokens for room in Noting.rooms][2:5:2] == [len(first), len(second)]
    assert {(room.max_tokens, room.max_turn_tokens) for room in Noting.rooms} == {(800, 80)}


def test_the_protocol_is_not_asked_about_a_turn_that_compacts(world: Any, policy: Any) -> None:
    rollout = play(world, policy.renderer)
    assert rollout.episode.format_score == rollout.reward == 1
    assert world.protocol.format_score([turn.text for turn in rollout.episode.turns]) < 1
    again = read_episode(rollout_record(rollout, "train", {}), world.protocol)
    assert again.format_score == 1 and again.final_answer == rollout.episode.final_answer
    assert again.turns[2].action == rollout.episode.turns[2].action == Action(COMPACT, "a note")


def test_a_context_that_is_none_or_too_long(world: Any, policy: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(Noting, "context", Context("word " * 800))
    full = play(world, policy.renderer)
    assert full.episode.stop_reason is StopReason.TOTAL_TOKENS
    assert len(full.trajectory.segments) == 1
    monkeypatch.setattr(Noting, "context", "In short.")
    failure: Any = play(world, policy.renderer).episode.failure
    assert "env 'toy'" in failure.owner and "'In short.'" in failure.message


@pytest.mark.parametrize(
    ("context", "said"),
    [
        (Context(7), "7 .*prompt"),  # type: ignore[arg-type]
        (Context("p", [1]), "kept"),  # type: ignore[arg-type]
        (Context("p", (True,)), "true.*kept"),
        (Context("p", (), ""), "reason"),
        (Context("p", (3,)), "put 3 .*0 to 2"),
        (Context("p", (-1,)), "put -1 "),
    ],
)
def test_a_context_of_no_sense_fails_the_episode(
    world: Any, policy: Any, monkeypatch: Any, context: Context, said: str
) -> None:
    monkeypatch.setattr(Noting, "context", context)
    rollout = play(world, policy.renderer)
    assert re.search(said, str(rollout.episode.failure)) and len(rollout.trajectory.segments) == 1


def test_each_task_has_its_own_window(
    world: Any, toy_world: Any, policy: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Noting, "window", 300, raising=False)
    plain = toy_world(reward="format", retriever="random", max_turns=9)
    own, other = (play(one, policy.renderer, [SEARCH] * 9) for one in (world, plain))
    assert own.episode.stop_reason is StopReason.TOTAL_TOKENS and Noting.rooms[-1].max_tokens == 300
    assert len(own.trajectory) <= 300 < len(other.trajectory)


def test_the_doctor_knows_contexts_and_stops_of_a_wrapper(world: Any, policy: Any) -> None:
    rollout = play(world, policy.renderer)
    sampler = SimpleNamespace(codec=policy.renderer, generator=None, limits=LIMITS)
    parts: Any = {"played": [rollout], "worlds": [world], "policy": policy, "sampler": sampler}
    subject: Any = SimpleNamespace(**parts)
    assert check_observations(subject).state is State.PASSED
    assert check_stops(subject).figures["stops"] == len(world.protocol.stops) + 1
    told = list(rollout.episode.turns)
    told[2] = replace(told[2], observation=" Go off. ")
    subject.played = [replace(rollout, episode=replace(rollout.episode, turns=tuple(told)))]
    assert check_observations(subject).state is State.FAILED


def test_no_rollout_branches_where_contexts_change(world: Any) -> None:
    branching: Any = SimpleNamespace(branches=True)
    with pytest.raises(ConfigError, match="env 'toy' has a wrapper that compacts.*such as grpo"):
        ensure_can_learn(build_config({}), branching, [world])
