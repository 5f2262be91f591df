"""Rollouts that a backend plays, and those of the next step, drawn while a step is trained."""

from __future__ import annotations

import pytest
import torch
from engine_toy import token_logps
from session_toy import MakeSession

from searchrl.engine.rollout.rollout import Rollout
from searchrl.errors import ConfigError
from searchrl.programs.setup.remote import CopyBackend
from searchrl.testing.kinds.backends import Saying

COPY = {"backend": "copy"}
AHEAD = {"algorithm": {"name": "tis", "beta": 0.0}, "scale": {**COPY, "max_staleness": 1}}


def told(rollouts: list[Rollout]) -> list[object]:
    """All that a backend sends back."""
    return [(r.trajectory, r.episode, r.scored, dict(r.reset_options)) for r in rollouts]


def test_what_a_backend_plays_is_what_this_process_plays(make_session: MakeSession) -> None:
    here, there = make_session(), make_session(scale=COPY)
    for step in (1, 2):
        one, other = here.sample(step), there.sample(step)
        assert told(one.rollouts) == told(other.rollouts)
        assert all(r.world in there.worlds for r in other.rollouts)
        assert here.sampler.stats == there.sampler.stats
        here.update(one, step)
        there.update(other, step)


def test_a_step_drawn_ahead_has_the_weights_from_before_the_update(
    make_session: MakeSession,
) -> None:
    """The stamp says which, and the log-probs are those of just these weights."""
    session = make_session(**AHEAD, max_steps=4)
    policy, weights = session.policy, list[list[torch.Tensor]]()
    for step in (1, 2, 3, 4):
        weights.append([p.detach().clone() for p in policy.parameters])
        drawn = session.sample(step)
        for rollout in drawn.rollouts:
            trajectory = rollout.trajectory
            chosen = torch.tensor([[v >= 0 for v in trajectory.policy_versions]])
            assert set(trajectory.policy_versions) - {-1} == {max(0, step - 2)}
            with torch.no_grad():
                _set(policy.parameters, weights[max(0, step - 2)])
                ids, temperature = torch.tensor([trajectory.ids]), session.learner.temperature
                logp_N = token_logps(policy, ids, chosen, temperature=temperature)
                _set(policy.parameters, weights[-1])
            recorded = [logp for logp in trajectory.sampler_logps if logp is not None]
            assert torch.allclose(logp_N, torch.tensor(recorded), atol=1e-5)
        session.update(drawn, step)
    assert session.ahead is None  # nothing is drawn for a step that never comes


def _set(parameters: list[torch.nn.Parameter], values: list[torch.Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"scale": AHEAD["scale"]}, "'grpo' does not correct.*--algorithm tis"),
        ({**AHEAD, "scale": {"max_staleness": 1}}, "scale.backend=copy"),
    ],
)
def test_drawing_ahead_is_refused_where_it_would_spoil_the_ratio(
    make_session: MakeSession, more: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"max_staleness = 1: .*{said}"):
        make_session(**more)


def test_whoever_wants_no_more_of_a_job_need_not_wait_for_its_end() -> None:
    class Slow(Saying):
        was_stopped = False

        def __call__(self, job: bytes, weights: object) -> bytes:
            self.was_stopped = self.is_stopped.wait(5)
            return job

    worker = Slow()
    playing = CopyBackend(lambda device: worker).run([b"a", b"b"], (1, []))  # type: ignore[arg-type, return-value]
    assert next(playing) is None
    playing.close()
    assert worker.was_stopped


def test_a_step_whose_rollouts_are_all_late_is_counted_and_trains_nothing(
    make_session: MakeSession,
) -> None:
    session = make_session(rollout={"step_timeout_s": 1e-9})
    drawn = session.sample(1)
    assert not drawn.rollouts and drawn.num_late == 6
    assert session.update(drawn, 1).metrics["num_tokens"] == 0
