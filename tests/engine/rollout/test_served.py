"""A wrapper that serves the policy: its prompts are ids, its rollouts may have several segments."""

from __future__ import annotations

from dataclasses import replace
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import pytest
import torch
from engine_toy import LIMITS

from searchrl.algorithms.builtin import make_grpo
from searchrl.algorithms.record import Algorithm
from searchrl.contracts import ANSWER, Action
from searchrl.contracts.serving import Rendered, SampledTurn, Serving
from searchrl.core.episode import StopReason
from searchrl.core.group import make_groups
from searchrl.core.reduction import LossSettings
from searchrl.core.trajectory import Author
from searchrl.engine.checks.report import State
from searchrl.engine.checks.texts import check_observations
from searchrl.engine.learning.packing import pack_step
from searchrl.engine.metrics.metrics import summarise
from searchrl.engine.metrics.remarks import find_forks
from searchrl.engine.model.layout import pad
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.rollout import Interrupted, Rollout, RolloutDriver
from searchrl.engine.sampling.generator import Sampling
from searchrl.engine.sampling.slot_generator import SlotGenerator

PROMPT, OTHER = (5, 6, 7, 8), (9, 10, 11)


class Asking(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Asks in the first segment, the second, the first again; then it has an answer."""

    asked = ((OTHER, 1, 3, "edited"), ((12, 13), 0, None, ""), ((), 1, None, ""))
    remedies: ClassVar[dict[str, str]] = {"edited": "Do not edit."}

    def serve(self, serving: Serving) -> None:
        """Remember what is said of the policy."""
        self.serving, self.replies = serving, list[SampledTurn]()

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """The first prompt."""
        _, info = self.env.reset(**kwargs)
        return Rendered("a", PROMPT), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The next prompt, or the end."""
        assert isinstance(action, SampledTurn)
        self.replies.append(action)
        if len(self.replies) <= len(self.asked):
            ids, number, most, reason = self.asked[len(self.replies) - 1]
            text = self.serving.codec.decode(ids)
            said = Rendered(text, ids, number, max_tokens=most, reason=reason)
            return said, 0.0, False, False, {"passages": ()}
        info = {"action": Action(ANSWER, "4"), "answer": "4", "signals": {"n": len(self.replies)}}
        return "", 0.5, True, False, info


@pytest.fixture
def played(toy_world: Any, policy: Policy) -> Any:
    def play(
        num_slots: int = 8,
        samples: int = 4,
        should_stop: Any = None,
        asked: Any = None,
        **limits: Any,
    ) -> list[Rollout]:
        class Other(Asking):
            pass

        Other.asked = asked or Asking.asked
        world = toy_world()
        plain = world.make_env
        world.make_env = lambda: Other(plain())
        world.close()  # what was made before is no wrapper
        world.is_served = True
        generator = SlotGenerator(policy, Sampling(1.0), num_slots, 256)
        driver = RolloutDriver(generator, policy.renderer, replace(LIMITS, **limits))
        request = RolloutRequest("g", world, "train", 0, tuple(range(70, 70 + samples)))
        (group,) = driver.run([request], should_stop=should_stop)
        return list(group.rollouts)

    return play


def test_what_was_sampled_is_recorded_once_in_the_segment_where_it_was_asked_for(
    played: Any, policy: Policy
) -> None:
    for rollout in played():
        trajectory, episode = rollout.trajectory, rollout.episode
        assert episode.stop_reason is StopReason.ANSWERED and episode.final_answer == "4"
        first, second = (one.ids for one in trajectory.segments)
        assert tuple(first[:4]) == PROMPT and tuple(second[:3]) == OTHER
        turns = [trajectory.turn_ids(turn) for turn in trajectory.turns]
        assert len(turns) == 4 and len(turns[1]) <= 3
        said = [12, 13]
        assert first == [*PROMPT, *turns[0], *said, *turns[2]]
        assert second == [*OTHER, *turns[1], *turns[3]]
        assert [turn.text for turn in episode.turns] == [
            policy.renderer.decode([i for i in ids if i not in policy.eos_ids]) for ids in turns
        ]
        assert episode.signals["n"] == 4 and episode.env_return == 0.5
        written = sum(author is Author.MODEL for author in trajectory.authors)
        assert written == sum(map(len, turns)) == trajectory.num_model_tokens


def test_tokens_depend_on_no_slot_and_no_order(played: Any) -> None:
    """Two slots for four rollouts of two segments: idle ones are opened anew."""
    few, many = played(num_slots=2), played(num_slots=8)
    assert [one.trajectory.ids for one in few] == [one.trajectory.ids for one in many]
    assert len({one.trajectory.ids for one in many}) == 4


def test_segments_that_begin_alike_have_keys_of_their_own(played: Any) -> None:
    """Else two segments with one prompt would say the same, word for word."""
    for rollout in played(asked=((OTHER, 1, 8, "a"), (OTHER, 2, 8, "b"), (OTHER, 3, 8, "c"))):
        trajectory = rollout.trajectory
        said = [trajectory.turn_ids(turn) for turn in trajectory.turns[1:]]
        assert len(said) == len({*said}) == 3


def test_a_prompt_that_a_generator_keeps_does_not_grow(
    played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[Any, list[int]]] = []
    open_ = SlotGenerator.open

    def keep(self: SlotGenerator, prompt_ids: Any, *rest: Any) -> Any:
        kept.append((prompt_ids, [*prompt_ids]))
        return open_(self, prompt_ids, *rest)

    monkeypatch.setattr(SlotGenerator, "open", keep)
    played(samples=1)
    assert len(kept) == 4 and all([*ids] == before for ids, before in kept)


def test_a_turn_has_the_room_that_its_own_segment_leaves(played: Any) -> None:
    for rollout in played(max_total_tokens=12, max_turn_tokens=64, asked=((OTHER, 1, None, ""),)):
        first, second = rollout.trajectory.segments
        assert len(first) <= 12 and len(second) <= 12
        assert max(len(first), len(second)) == 12
    # Without room for a token, the episode ends there, and its slot is the next one's.
    long = (tuple(range(40, 45)), 1, None, "")
    for full in played(num_slots=1, samples=2, max_total_tokens=5, asked=(long,)):
        assert full.episode.stop_reason is StopReason.TOTAL_TOKENS
        assert len(full.trajectory.turns) == 1 and full.episode.turns[0].observation == ""


def test_a_text_where_the_policy_needs_ids_is_the_wrappers_fault(
    played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Asking, "step", lambda self, action: ("", 0.0, False, False, {}))
    (rollout,) = played(samples=1)
    failure = rollout.episode.failure
    assert failure is not None and failure.message.endswith("expected Rendered")


def test_the_trainer_has_the_log_probs_of_the_sampler_in_every_segment(
    played: Any, policy: Policy
) -> None:
    for rollout in played():
        algorithm = Algorithm("mine", lambda step: [1.0], make_grpo().loss)
        packed = pack_step(make_groups([rollout]), algorithm, LossSettings())
        found = [
            policy.logps(pad([row], torch.device("cpu")), temperature=1.0).logp_N
            for row in packed.rows
        ]
        recorded = [logp for logp in rollout.trajectory.sampler_logps if logp is not None]
        assert (torch.cat(found) - torch.tensor(recorded)).abs().max() <= 2e-5


def test_segments_are_counted_and_many_forks_are_said_with_what_to_change(played: Any) -> None:
    rollouts = played()
    metrics = summarise(rollouts)
    assert {metrics["requests"]["value"], metrics["segments"]["value"]} == {4.0, 2.0}
    assert (metrics["forks/edited"]["value"], metrics["forks/edited"]["n"]) == (1 / 4, 16)
    sizes = [[len(one) for one in r.trajectory.segments] for r in rollouts]
    second = sum(size for _, size in sizes) / sum(map(sum, sizes))
    assert metrics["fork_tokens"]["value"] == pytest.approx(second)
    assert rollout_record(rollouts[0], "train", {})["segment_reasons"] == ["first", "edited"]
    (said,) = find_forks(rollouts)
    assert "25%" in said and "'edited' (4 of 4)" in said and said.endswith("Do not edit.")
    assert f"request 2 of rollout {rollouts[0].trajectory.rollout_id}." in said
    rollouts[0].world.is_served = False
    assert not find_forks(rollouts) and "requests" not in summarise(rollouts)


def test_the_doctor_reads_what_was_said_in_every_segment(played: Any, policy: Policy) -> None:
    rollout = played()[0]
    sampler = SimpleNamespace(codec=policy.renderer)
    subject: Any = SimpleNamespace(played=[rollout], policy=policy, sampler=sampler)
    verdict = check_observations(subject)
    assert verdict.state is State.PASSED and verdict.figures["observation_tokens"] == 5
    for number in range(3):
        told = list(rollout.episode.turns)
        told[number] = replace(told[number], observation="another text")
        subject.played = [replace(rollout, episode=replace(rollout.episode, turns=tuple(told)))]
        assert check_observations(subject).state is State.FAILED, number


def test_asked_to_stop_it_tells_a_wrapper_that_is_still_in_a_step(
    played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: SimpleQueue[str] = SimpleQueue()

    def step(self: Asking, _: Any) -> None:
        told.put("in a step")
        self.serving.over.result(9)
        told.put("over")

    monkeypatch.setattr(Asking, "step", step)
    with pytest.raises(Interrupted):
        played(samples=1, should_stop=lambda: told.get(timeout=9))
    assert told.get(timeout=9) == "over"
