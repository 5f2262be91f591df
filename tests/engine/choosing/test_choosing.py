"""Policies without tokens: masks, draws, the ledger, and a ratio of exactly 1."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from engine.choosing.choosing_toy import (
    CPU,
    make_choices,
    make_driver,
    make_policy,
    make_world,
    requests,
)
from gymnasium.spaces import Box, Dict, Discrete, Text

from searchrl.algorithms import make_grpo
from searchrl.config.sections import AlgorithmConfig, OptimConfig
from searchrl.contracts import ChoiceSpace
from searchrl.core.episode import ACT, StopReason
from searchrl.core.reduction import Reduction
from searchrl.core.trajectory import Trajectory, TurnStop, View
from searchrl.engine.choosing.masks import entropies, masked_logps, run_episodes
from searchrl.engine.episodes.playing import Interrupted, Rollout
from searchrl.engine.learning.batch_check import BatchCheck
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.packing import micro_batches, pack_step
from searchrl.engine.model.tolerance import Tolerance
from searchrl.envs.choices import find_space, read_row, take_view
from searchrl.errors import CheckError, ConfigError, EnvironmentFailure, PluginError

pytestmark = pytest.mark.thorough

EXACT = Tolerance(0.0, 0.0)


def play(policy: Any, count: int = 12, **more: Any) -> list[Rollout]:
    groups = make_driver(policy, **more).run(requests(make_world(), count))
    return [rollout for group in groups for rollout in group.rollouts]


def make_learner(policy: Any, **optim: Any) -> Learner:
    settings = {"lr": 0.02, "warmup_steps": 0, "micro_batch_tokens": 64, **optim}
    return Learner(
        policy, make_grpo(), AlgorithmConfig(beta=0.0), OptimConfig(**settings), max_steps=100,
        constant=5, check=BatchCheck(str, EXACT),
    )  # fmt: skip


# --- masks -----------------------------------------------------------------------------------
def test_illegal_actions_have_no_probability_and_no_gradient() -> None:
    logits = torch.tensor([[[1.0, 2.0, 5.0]]], requires_grad=True)
    legal = torch.tensor([[[True, True, False]]])
    logp = masked_logps(logits, legal, 0.5)
    total = math.log(math.exp(2) + math.exp(4))
    assert logp[0, 0, :2].tolist() == pytest.approx([2 - total, 4 - total], abs=1e-6)
    assert logp[0, 0, 2] == -torch.inf
    p = math.exp(2 - total)
    entropy = entropies(logp, legal)
    expected = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert entropy.item() == pytest.approx(expected, abs=1e-6)
    (logp[0, 0, 0] + entropy.sum()).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None and bool(torch.isfinite(logits.grad).all())
    assert logits.grad[0, 0, 2] == 0


def test_a_choice_of_one_action_is_certain() -> None:
    logp = masked_logps(torch.randn(1, 1, 3), torch.tensor([[[False, True, False]]]), 1.0)
    assert logp[0, 0, 1] == 0
    assert entropies(logp, torch.tensor([[[False, True, False]]])).item() == 0


# --- the ledger --------------------------------------------------------------------------------
def test_a_choice_is_an_id_with_its_view() -> None:
    ledger, view = Trajectory("r", "g"), View(b"1234", (True, False))
    ledger.append_prompt([])
    ledger.append_model((0,), (-0.5,), version=3, reason=TurnStop.CHOICE, saw=view)
    assert (ledger.ids, ledger.views, ledger.num_prompt_tokens) == ((0,), (view,), 0)
    for ids in ((1,), (2,), (0, 0), (-1,)):
        with pytest.raises(ValueError, match="one of the legal actions"):
            ledger.append_model(ids, (0.0,) * len(ids), version=3, reason=TurnStop.CHOICE, saw=view)
    with pytest.raises(ValueError, match="either every turn has a view, or none"):
        ledger.append_model((0,), (0.0,), version=3, reason=TurnStop.EOS)
    tokens = Trajectory("r", "g")
    tokens.append_model((0,), (0.0,), version=3, reason=TurnStop.EOS)
    with pytest.raises(ValueError, match="either every turn has a view, or none"):
        tokens.append_model((0,), (0.0,), version=3, reason=TurnStop.CHOICE, saw=view)
    assert tokens.views == () and len(ledger) == 1


# --- spaces ------------------------------------------------------------------------------------
def test_a_space_names_its_blocks_in_the_order_of_a_row() -> None:
    env = make_world().ask(lambda env: env)
    space = find_space(env, "arms")
    assert space == ChoiceSpace((("cue", 3), ("step", 6)), ("look", "left", "right"))
    assert (space.width, space.num_actions) == (9, 3)
    assert (space.find_block("step"), space.find_block("none")) == (slice(3, 9), None)
    assert ChoiceSpace.from_dict(space.to_dict()) == space
    observation, info = env.reset(seed=0, options={"split": "train", "index": 0})
    view = take_view(env, observation, info, "reset")
    assert read_row(view).tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert view.legal == (True, False, False)


@pytest.mark.parametrize(
    ("spaces", "says"),
    [
        ({"action_space": Box(0, 1, (2,))}, "its actions are Box"),
        ({"action_space": Discrete(3, start=1)}, "numbered from 0"),
        ({"observation_space": Dict({"words": Text(9)})}, "its observation 'words' is Text"),
        ({"action_names": ("one", "one", "two")}, "must be 3 different names"),
        ({"action_names": ("one", "two")}, "must be 3 different names"),
        ({"max_choices": None}, "how many choices an episode can have"),
    ],
)
def test_other_spaces_are_refused(spaces: dict[str, Any], says: str) -> None:
    env = make_world().ask(lambda env: env)
    vars(env).update(spaces)
    with pytest.raises(ConfigError, match=f"env arms: .*{says}"):
        find_space(env, "arms")


@pytest.mark.parametrize(
    ("observation", "info", "says"),
    [
        ({"cue": np.full(3, np.nan), "step": 0}, {}, "whose number 0 is nan"),
        ({"cue": np.zeros(3)}, {}, "not of its space"),
        ({"cue": np.zeros(4), "step": 0}, {}, "of 10 numbers; its space has 9"),
        ({"cue": np.zeros(3), "step": 0}, {"action_mask": [1, 0]}, "3 values of 0 or 1"),
        ({"cue": np.zeros(3), "step": 0}, {"action_mask": [2, 0, 0]}, "3 values of 0 or 1"),
        ({"cue": np.zeros(3), "step": 0}, {"action_mask": [0, 0, 0]}, "leaves no action"),
    ],
)
def test_what_cannot_be_seen_is_a_failure_of_the_environment(
    observation: Any, info: dict[str, Any], says: str
) -> None:
    with pytest.raises(EnvironmentFailure, match=rf"step\(\) .*{says}"):
        take_view(make_world().ask(lambda env: env), observation, info, "step")


# --- playing -----------------------------------------------------------------------------------
def test_episodes_are_recorded_choice_by_choice() -> None:
    for rollout in play(make_policy()):
        ledger, episode = rollout.trajectory, rollout.episode
        assert ledger.ids[0] == 0 and ledger.sampler_logps[0] == 0.0
        assert len(ledger.views) == len(ledger.turns) == len(episode.turns) == len(ledger)
        assert [turn.action.kind for turn in episode.turns] == [ACT] * len(ledger)
        assert ledger.generated_text == " → ".join(turn.text for turn in episode.turns)
        assert episode.env_return == sum(turn.reward for turn in episode.turns) == rollout.reward
        is_over = ledger.ids[-1] != 0
        assert episode.stop_reason is (StopReason.ANSWERED if is_over else StopReason.TURN_LIMIT)
        assert is_over or len(ledger) == 5
        for name, action in zip(episode.turns, ledger.ids, strict=True):
            assert name.text == ("look", "left", "right")[action]


def test_a_draw_depends_on_its_key_and_on_no_other_episode() -> None:
    policy, world = make_policy(), make_world()
    together = make_driver(policy).run(requests(world, 12))
    for place in (0, 7):
        (alone,) = make_driver(policy).run([requests(world, 12)[place]])
        for one, other in zip(alone.rollouts, together[place].rollouts, strict=True):
            assert list(one.trajectory) == list(other.trajectory)
    again = make_driver(policy).run(requests(world, 12, seed=1))
    assert [r.trajectory.ids for g in again for r in g.rollouts] != [
        r.trajectory.ids for g in together for r in g.rollouts
    ]


def test_actions_are_drawn_as_often_as_they_are_probable() -> None:
    policy = make_policy("mlp")
    groups = make_driver(policy).run(requests(make_world(), 4, size=300))
    for group in groups:
        second = [r.trajectory for r in group.rollouts]
        (row,) = {one.views[1] for one in second}
        layout = policy.lay_out([pack(group.rollouts[0])], CPU)
        p = policy.distributions(replace(layout, row_N=torch.tensor([1])))[0].exp()
        for action in range(3):
            share = sum(one.ids[1] == action for one in second) / len(second)
            assert share == pytest.approx(float(p[action]), abs=0.08), row


def pack(rollout: Rollout) -> Any:
    from types import SimpleNamespace

    ledger = rollout.trajectory
    return SimpleNamespace(ids=list(ledger.ids), mask=[True] * len(ledger), views=ledger.views)


def test_greedy_takes_the_most_probable_action() -> None:
    policy = make_policy()
    rollouts = play(policy, temperature=0.0)
    assert len({r.trajectory.ids for r in rollouts}) <= 12
    layout = policy.lay_out([pack(r) for r in rollouts], CPU)
    assert bool(policy.logps(layout, with_best=True).is_best_N.all())  # type: ignore[union-attr]


def test_a_group_that_sees_two_tasks_fails() -> None:
    world = make_world()
    made = world.make_env

    def unlike() -> Any:
        env = made()
        unlike.count += 1  # type: ignore[attr-defined]
        env.unwrapped.cue_at_reset = unlike.count  # type: ignore[attr-defined]
        reset = env.reset
        shift = float(unlike.count % 2)  # type: ignore[attr-defined]

        def shifted(**more: Any) -> Any:
            observation, info = reset(**more)
            return {**observation, "cue": observation["cue"] + shift}, info

        env.reset = shifted  # type: ignore[method-assign]
        return env

    unlike.count = 0  # type: ignore[attr-defined]
    world.make_env = unlike
    world._idle.clear()
    (group,) = make_driver(make_policy()).run(requests(world, 1, size=4))
    failed = [r.episode.failure for r in group.rollouts if r.episode.failure is not None]
    assert len(failed) == 2 and "something different" in failed[0].message


def test_what_an_environment_raises_fails_its_episode_alone() -> None:
    world = make_world()
    made = world.make_env

    def breaking() -> Any:
        env = made()
        step = env.step

        def raising(action: int) -> Any:
            if action == 1:
                raise OSError("the arm came off")
            return step(action)

        env.step = raising  # type: ignore[method-assign]
        return env

    world.make_env = breaking
    world._idle.clear()
    groups = make_driver(make_policy()).run(requests(world, 6))
    for rollout in (rollout for group in groups for rollout in group.rollouts):
        pulled_left = rollout.trajectory.ids[-1] == 1
        assert (rollout.episode.failure is not None) is pulled_left
        assert (rollout.reward is None) is pulled_left


def test_a_run_that_is_stopped_gives_its_environments_back() -> None:
    world = make_world()
    with pytest.raises(Interrupted):
        make_driver(make_policy()).run(requests(world, 2, size=3), should_stop=lambda: True)
    assert len(world._idle) == 6


def test_a_network_that_returns_something_else_is_named() -> None:
    policy = make_policy("mlp")
    policy.network = torch.nn.Linear(9, 3)
    with pytest.raises(PluginError, match=r"policy 'mlp' \(.*\): it returned Tensor"):
        play(policy)


# --- the ratio ---------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("name", "settings"), [("mlp", {"hidden": []}), ("mlp", {"critic": True}), ("gru", {})]
)
def test_the_ratio_is_exactly_1_before_any_update(
    name: str, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    """Whatever is batched together: the learner's batches are others than those of the driver."""
    policy = make_policy(name, dtype=dtype, **settings)
    groups = make_driver(policy).run(requests(make_world(), 30))
    step = pack_step(
        groups, make_grpo().advantages, Reduction.TOKEN_MEAN, keep_dead_groups=True, constant=5
    )
    for size in (5, 64, 10_000):
        batches = list(micro_batches(step.groups, size, CPU, lay_out=policy.lay_out))
        assert sum(len(batch.rollouts) for batch in batches) == 240
        for batch in batches:
            with policy.updating():
                logp_N = policy.logps(batch.layout).logp_N
            assert logp_N.requires_grad
            assert torch.equal(logp_N.float(), batch.sampler_logp_N)


def test_a_whole_step_begins_at_ratio_1_and_learns() -> None:
    """The check of every batch allows no difference at all here."""
    policy = make_choices(make_policy().space, "gru")
    learner, world, rewards = make_learner(policy), make_world(), []
    for step in range(12):
        groups = make_driver(policy).run(requests(world, 8, size=16, seed=step))
        rewards.append(np.mean([r.reward for g in groups for r in g.rollouts]))
        metrics = learner.train_step(groups)
        if metrics["num_tokens"]:  # no group is constant yet
            assert metrics["max_abs_log_ratio"] == 0.0 and metrics["ratio_mean"] == 1.0
    assert rewards[0] < 0.5 < 0.9 < min(rewards[-2:])


def test_a_view_that_was_changed_stops_the_step() -> None:
    policy = make_policy()
    groups = make_driver(policy).run(requests(make_world(), 4))
    step = pack_step(
        groups, make_grpo().advantages, Reduction.TOKEN_MEAN, keep_dead_groups=True, constant=5
    )
    rollout = step.groups[0].rollouts[0]
    check = BatchCheck(str, EXACT)
    check.begin(groups, step)
    first = rollout.views[0]
    for other in (first._replace(legal=(True, True, True)), first._replace(values=bytes(36))):
        changed = replace(rollout, views=(other, *rollout.views[1:]))
        (batch,) = micro_batches(
            [replace(step.groups[0], rollouts=(changed,))], 100, CPU, lay_out=policy.lay_out
        )
        with pytest.raises(CheckError, match="view|mask of legal actions") as caught:
            check.look(batch, 0)
        assert caught.value.check == "layout"
        altered = replace(step, groups=(replace(step.groups[0], rollouts=(changed,)),))
        with pytest.raises(CheckError, match="another view") as caught:
            check.begin(groups, altered)
        assert caught.value.check == "views"


def test_without_the_mask_at_update_the_check_stops_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Masked log-probs at rollout and not at update (search-rl): the ratio is not 1."""
    policy = make_policy()
    groups = make_driver(policy).run(requests(make_world(), 4))
    from searchrl.engine.choosing import policy as module

    monkeypatch.setattr(
        module,
        "masked_logps",
        lambda logits, legal, heat: masked_logps(logits, torch.ones_like(legal), heat),
    )
    with pytest.raises(CheckError) as caught:
        make_learner(policy).train_step(groups)
    assert caught.value.check == "mismatch"


def test_what_a_network_says_of_an_episode_is_the_same_in_any_company() -> None:
    policy = make_policy()
    seen_BSD = torch.randn(9, 5, 9)
    with torch.no_grad():
        whole = run_episodes(policy.network, seen_BSD)
        part = run_episodes(policy.network, seen_BSD[3:5])
    assert whole.logits_BSA.shape == (9, 5, 3)
    assert whole.value_BS is not None and whole.value_BS.shape == (9, 5)
    assert torch.equal(part.logits_BSA, whole.logits_BSA[3:5])


def test_the_reference_stays() -> None:
    policy = make_policy()
    layout = policy.lay_out([pack(r) for r in play(policy)], CPU)
    before = policy.logps(layout).logp_N.detach()
    policy.keep_reference()
    with torch.no_grad():
        for parameter in policy.parameters:
            parameter.add_(0.1)
    assert torch.allclose(policy.logps(layout, reference=True).logp_N, before, atol=1e-6)
    assert not torch.allclose(policy.logps(layout).logp_N, before, atol=1e-2)
