"""The draw of a choice, what a network must return, and how a policy is made, kept and loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from engine.choosing.choosing_toy import (
    CPU,
    SETTINGS,
    make_driver,
    make_policy,
    make_world,
    registry,
    requests,
)
from safetensors.torch import load_file
from torch import Tensor, nn

from searchrl.config import build_config
from searchrl.contracts import ChoiceSpace, Chosen
from searchrl.core.trajectory import View
from searchrl.engine.choosing.chooser import Chooser
from searchrl.engine.choosing.layout import stack_views
from searchrl.engine.choosing.loading import ensure_one_space, make_choices
from searchrl.engine.choosing.masks import masked_logps
from searchrl.engine.choosing.policy import WEIGHTS, Choices
from searchrl.errors import ConfigError, PluginError, RunFolderError

TWO = (True, False, True)
"""The second action is not legal."""


def view(*numbers: float, legal: tuple[bool, ...] = TWO) -> View:
    row = np.zeros(9, "<f4")
    row[: len(numbers)] = numbers
    return View(row.tobytes(), legal)


class Says(nn.Module):
    """Says what it was given to say, of any episode."""

    def __init__(self, say: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.say = say
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, seen_BSD: Tensor) -> object:
        return self.say(seen_BSD)


def saying(say: Callable[[Tensor], object]) -> Choices:
    policy = make_policy("mlp")
    policy.network = Says(say)
    return policy


def constant(seen_BSD: Tensor) -> Chosen:
    logits = torch.tensor([0.0, 9.0, 1.0])
    return Chosen(logits.expand(*seen_BSD.shape[:2], 3))


# --- the draw ----------------------------------------------------------------------------------
@pytest.mark.parametrize("heat", [0.5, 1.0, 2.0])
def test_a_choice_says_how_probable_each_action_was_at_its_temperature(heat: float) -> None:
    policy = saying(constant)
    policy.version = 7
    (chose,) = Chooser(policy, heat).choose([[view()]], [3])
    right = 1 / (1 + np.exp(-1 / heat))
    assert chose.probs == pytest.approx((1 - right, 0.0, right), abs=1e-6)
    assert chose.logp == pytest.approx(np.log(chose.probs[chose.action]), abs=1e-6)
    assert chose.version == 7


def test_without_a_temperature_log_probs_are_those_of_temperature_1() -> None:
    policy = saying(constant)
    (greedy,), (drawn,) = (Chooser(policy, t).choose([[view()]], [3]) for t in (0.0, 1.0))
    assert greedy.action == 2 and greedy.probs == drawn.probs


def test_each_turn_of_an_episode_is_drawn_anew() -> None:
    chooser, keys = Chooser(saying(constant), 1.0), list(range(64))
    first, second = (
        [chose.action for chose in chooser.choose([[view()] * turns] * 64, keys)]
        for turns in (1, 2)
    )
    assert set(first) == set(second) == {0, 2} and first != second


def test_the_last_view_decides_and_dropout_is_off() -> None:
    policy = make_policy("gru")
    policy.network = nn.Sequential(nn.Dropout(0.9), policy.network)
    policy.network.train()
    seen = [[view(1.0), view(2.0)], [view(1.0), view(2.0)]]
    one, other = Chooser(policy, 0.0).choose(seen, [1, 2])
    assert one == other and policy.network.training
    with policy.updating():
        layout = policy.lay_out(
            [SimpleNamespace(views=seen[0], ids=[0, one.action], mask=[False, True])], CPU
        )
        assert policy.logps(layout).logp_N.tolist() == [one.logp]


def test_weights_that_are_not_finite_fail_the_episodes() -> None:
    policy = make_policy("mlp")
    with torch.no_grad():
        policy.parameters[0].fill_(torch.nan)
    (group,) = make_driver(policy).run(requests(make_world(), 1, size=2))
    for rollout in group.rollouts:
        failure = rollout.episode.failure
        # A first choice with one legal action is certain, and is not finite all the same.
        assert failure is not None and "not finite; its weights are damaged" in failure.message
        assert rollout.reward is None


# --- what a network returns --------------------------------------------------------------------
@pytest.mark.parametrize(
    ("say", "told"),
    [
        (lambda seen: Chosen(torch.zeros(1, 5)), r"logits are of shape \(1, 5\); expected"),
        (lambda seen: Chosen(torch.zeros(1, 1, 3)), r"expected \[B, S, A\] = \(1, 5, A\)"),
        (
            lambda seen: Chosen(torch.zeros(1, 5, 3), torch.zeros(1, 5, 1)),
            r"values are of shape \(1, 5, 1\); expected \[B, S\] = \(1, 5\)",
        ),
    ],
)
def test_a_network_of_other_shapes_is_named(say: Any, told: str) -> None:
    with pytest.raises(PluginError, match=rf"policy 'mlp' .*{told}"):
        Chooser(saying(say), 1.0).choose([[view()]], [0])


def test_log_probs_have_32_bits_at_least() -> None:
    logits = torch.tensor([[[1.0, 2.0, 3.0]]])
    legal = torch.tensor([[TWO]])
    whole = masked_logps(logits, legal, 1.0)
    half = masked_logps(logits.to(torch.bfloat16), legal, 1.0)
    assert half.dtype == torch.float32 and torch.equal(half, whole)
    assert masked_logps(logits.double(), legal, 1.0).dtype == torch.float64


def test_everything_is_legal_where_nothing_was_seen() -> None:
    seen, legal = stack_views([[view(1.0)], [view(1.0), view(2.0)]], 3)
    assert legal.tolist() == [[list(TWO), [True] * 3, [True] * 3], [list(TWO)] * 2 + [[True] * 3]]
    assert seen[:, :, 0].tolist() == [[1.0, 0.0, 0.0], [1.0, 2.0, 0.0]]


def test_entropy_has_a_gradient_only_where_it_is_asked_for() -> None:
    policy = make_policy("mlp")
    row = SimpleNamespace(views=[view()], ids=[0], mask=[True])
    for asked in (False, True):
        made = policy.logps(policy.lay_out([row], CPU), with_entropy=True, entropy_gradient=asked)
        assert made.entropy_N is not None and made.entropy_N.requires_grad is asked
        assert made.logp_N.requires_grad


# --- making, keeping, loading ------------------------------------------------------------------
def make(folder: Path | None = None, **settings: Any) -> Choices:
    config = build_config({**SETTINGS, "policy": {"name": "mlp", "hidden": [4]}, **settings})
    return make_choices(config, registry(), [make_world()], CPU, folder)


def test_a_new_network_is_that_of_its_seed() -> None:
    one = make()
    torch.rand(3)
    again, other = make(), make(seed=1)
    pairs = list(zip(one.parameters, again.parameters, strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(one.parameters[0], other.parameters[0])


def test_all_tasks_of_a_network_have_one_space() -> None:
    space = make_world().space
    renamed = ChoiceSpace(space.blocks, ("look", "right", "left"), space.max_choices)
    worlds: Any = [
        SimpleNamespace(name=name, space=one, entry=SimpleNamespace(turns="choice"))
        for name, one in (("arms", space), ("legs", renamed))
    ]
    assert ensure_one_space("mlp", worlds[:1]) == space
    with pytest.raises(ConfigError, match="env 'legs' shows .* but env 'arms' .*same spaces"):
        ensure_one_space("mlp", worlds)


def test_a_saved_network_of_renamed_actions_is_refused(tmp_path: Path) -> None:
    made = make()
    made.save(tmp_path / "same")
    assert torch.equal(make(tmp_path / "same").parameters[0], made.parameters[0])
    made.space = ChoiceSpace(made.space.blocks, ("look", "right", "left"), 5)
    made.save(tmp_path / "other")
    with pytest.raises(ConfigError, match="holds policy 'mlp' for .*asked for is policy 'mlp'"):
        make(tmp_path / "other")


def test_weights_of_a_larger_network_are_refused(tmp_path: Path) -> None:
    made = make(policy={"name": "mlp", "hidden": [4, 4]})
    made.save(tmp_path)
    with pytest.raises(RunFolderError, match="another network than policy 'mlp' with these"):
        make().load(tmp_path, load_file(tmp_path / WEIGHTS))
    with_more = make().network.state_dict() | {"actor.9.bias": torch.zeros(3)}
    with pytest.raises(RunFolderError, match=r"has 'actor\.9\.bias', which it lacks"):
        make().load(tmp_path, with_more)


def test_the_reference_is_that_of_the_first_time() -> None:
    policy = make_policy("mlp")
    layout = policy.lay_out([SimpleNamespace(views=[view()], ids=[0], mask=[True])], CPU)
    policy.keep_reference()
    before = policy.logps(layout, reference=True).logp_N
    with torch.no_grad():
        policy.parameters[-1].add_(torch.tensor([1.0, 0.0, -1.0]))
    policy.keep_reference()
    assert torch.equal(policy.logps(layout, reference=True).logp_N, before)
    assert not torch.equal(policy.logps(layout).logp_N, before)
