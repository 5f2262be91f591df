"""A wrapper that serves the policy: its prompts are ids, its rollouts may have several segments."""

from __future__ import annotations

from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import gymnasium
import pytest
import torch
from engine_toy import LIMITS

from searchrl.contracts import ANSWER, Action
from searchrl.contracts.serving import Rendered, SampledTurn, Serving
from searchrl.core.episode import StopReason
from searchrl.core.group import make_groups
from searchrl.core.trajectory import Author
from searchrl.engine.learning.packing import point_rows
from searchrl.engine.model.layout import lay_out
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.rollout import Interrupted, Rollout, RolloutDriver
from searchrl.engine.sampling.generator import Sampling
from searchrl.engine.sampling.slot_generator import SlotGenerator

PROMPT, OTHER = (5, 6, 7, 8), (9, 10, 11)


class Asking(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Asks in the first segment, the second, the first again; then it has an answer."""

    asked = (
        Rendered("b", OTHER, 1, max_tokens=3),
        Rendered("c", (12, 13), 0),
        Rendered("d", (), 1),
    )

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
            return self.asked[len(self.replies) - 1], 0.0, False, False, {"passages": ()}
        info = {"action": Action(ANSWER, "4"), "answer": "4", "signals": {"n": len(self.replies)}}
        return "", 0.5, True, False, info


@pytest.fixture
def played(toy_world: Any, policy: Policy) -> Any:
    def play(
        num_slots: int = 8, samples: int = 4, should_stop: Any = None, **limits: Any
    ) -> list[Rollout]:
        world = toy_world()
        plain = world.make_env
        world.make_env = lambda: Asking(plain())
        world.close()  # what was made before is no wrapper
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
        first, second = ([*map(trajectory.ids.__getitem__, one)] for one in trajectory.segments)
        assert tuple(first[:4]) == PROMPT and tuple(second[:3]) == OTHER
        turns = [trajectory.ids[turn.start : turn.stop] for turn in trajectory.turns]
        assert len(turns) == 4 and len(turns[1]) <= 3
        said = [12, 13]
        assert first == [*PROMPT, *turns[0], *said, *turns[2]]
        assert second == [*OTHER, *turns[1], *turns[3]]
        assert [turn.text for turn in episode.turns] == [
            policy.renderer.decode([i for i in ids if i not in policy.eos_ids]) for ids in turns
        ]
        assert episode.signals["n"] == 4 and episode.env_return == 0.5
        # Plain texts: an episode is sent to other processes.
        assert {type(t) for turn in episode.turns for t in (turn.text, turn.observation)} == {str}
        written = sum(author is Author.MODEL for author in trajectory.authors)
        assert written == sum(map(len, turns)) == trajectory.num_model_tokens


def test_tokens_depend_on_no_slot_and_no_order(played: Any) -> None:
    """Two slots for four rollouts of two segments: idle ones are opened anew."""
    few, many = played(num_slots=2), played(num_slots=8)
    assert [one.trajectory.ids for one in few] == [one.trajectory.ids for one in many]
    assert len({one.trajectory.ids for one in many}) == 4


def test_the_trainer_has_the_log_probs_of_the_sampler_in_every_segment(
    played: Any, policy: Policy
) -> None:
    for rollout in played():
        groups = make_groups([rollout])
        (rows,) = point_rows(groups, per_token=True, with_end=False)
        found = [
            policy.logps(lay_out([row], torch.device("cpu")), temperature=1.0).logp_N
            for row in rows.rollouts
        ]
        recorded = [logp for logp in rollout.trajectory.sampler_logps if logp is not None]
        assert (torch.cat(found) - torch.tensor(recorded)).abs().max() <= 2e-5


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
