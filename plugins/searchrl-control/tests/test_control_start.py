"""What networks begin with: a fixed sequence of actions, and signs against what is usual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from searchrl_control.environment.actions import SETS
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.features import LIST_FEATURES, QUERY_FEATURES
from searchrl_control.policies.inputs import NAMED, Inputs
from searchrl_control.policies.networks import make_gru, make_linear, make_mlp
from searchrl_control.policies.space import Space, row_of, space_of
from searchrl_control.policies.typical import FARTHEST, TYPICAL, means_and_spreads

from searchrl import ConfigError

every_network = pytest.mark.parametrize("make", [make_linear, make_mlp, make_gru])


def play(env: RetrievalControlEnv, network: Any, split: str = "train") -> list[str]:
    """The most probable actions of an episode, by name."""
    rows, names, is_over = [], [], False
    shown, info = env.reset(options={"split": split, "index": 0})
    while not is_over:
        rows.append(torch.from_numpy(row_of(env, shown)))
        with torch.no_grad():
            logits = network.eval()(torch.stack(rows)[None]).logits_BSA[0, -1]
        legal = torch.tensor(info["action_mask"], dtype=torch.bool)
        action = int(torch.where(legal, logits, -torch.inf).argmax())
        names.append(env.action_names[action])
        shown, _, terminated, truncated, info = env.step(action)
        is_over = terminated or truncated
    return names


@every_network
@pytest.mark.parametrize(
    ("names", "played"),
    [
        (("Follow", "Hop", "Broad", "Hop"), ["Search", "Follow", "Hop", "Broad", "Hop"]),
        (("Fuse",), ["Search", "Fuse", "Terminate"]),
    ],
)
def test_a_network_begins_as_its_sequence(
    toy: dict[str, Any], make: Any, names: Sequence[str], played: list[str]
) -> None:
    env = RetrievalControlEnv(**toy, actions="heads")
    torch.manual_seed(0)
    network = make(space_of(env), start=tuple(names))
    assert play(env, network) == played


def test_a_sequence_is_likely_at_the_start_and_not_certain(toy: dict[str, Any]) -> None:
    space = space_of(RetrievalControlEnv(**toy, actions="heads"))
    torch.manual_seed(0)
    network = make_linear(space, start=("Fuse",), strength=3.0)
    step = space.find_block("step")
    assert step is not None
    seen = torch.zeros((1, 3, space.width))
    seen[0, range(3), range(step.start, step.start + 3)] = 1
    shares = torch.softmax(network(seen).logits_BSA[0].detach(), dim=-1)
    usual = torch.softmax(make_linear(space)(seen).logits_BSA[0], dim=-1)
    fuse, end = space.actions.index("Fuse"), space.actions.index("Terminate")
    assert 0.55 < float(shares[1, fuse]) < 0.85 and 0.55 < float(shares[2, end]) < 0.85
    assert shares.min() > 0.01 and usual.max() < 0.4
    assert not [name for name in network.state_dict() if "start" in name]


def test_the_sequence_is_not_trained_and_the_rest_is(toy: dict[str, Any]) -> None:
    space = space_of(RetrievalControlEnv(**toy, actions="wide"))
    network = make_linear(space, start=("Link",))
    network(torch.randn((2, 3, space.width))).logits_BSA[..., 0].sum().backward()
    trained = {name for name, one in network.named_parameters() if one.grad is not None}
    assert "actor.weight" in trained and not [name for name in trained if "start" in name]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("Folow",), "Did you mean 'Follow'"),
        (("Fuse",) * 5, "at most 4 can follow; got 5"),
    ],
)
def test_a_sequence_that_cannot_be_played_is_refused(
    toy: dict[str, Any], names: tuple[str, ...], said: str
) -> None:
    space = space_of(RetrievalControlEnv(**toy, actions="heads"))
    with pytest.raises(ConfigError, match=said):
        make_linear(space, start=names)


def test_a_sequence_needs_an_environment_that_shows_the_step() -> None:
    space = Space((("x", 3),), ("go", "stop"))
    with pytest.raises(ConfigError, match="does not show which step it is"):
        make_linear(space, start=("go",))
    assert make_linear(space)(torch.zeros((1, 2, 3))).logits_BSA.shape == (1, 2, 2)


def test_every_sign_has_a_usual_mean_and_spread() -> None:
    assert {name for names in NAMED.values() for name in names} == set(TYPICAL)
    assert all(spread >= 0.01 for _, spread in TYPICAL.values())
    means, spreads = means_and_spreads(QUERY_FEATURES)
    assert (means[0], spreads[0]) == TYPICAL["terms"]


@pytest.mark.parametrize("actions", list(SETS))
def test_signs_are_read_as_how_far_they_are_from_what_is_usual(
    toy: dict[str, Any], actions: str
) -> None:
    space = space_of(RetrievalControlEnv(**toy, actions=actions))
    inputs = Inputs(space, 0)
    name = "searches" if actions == "heads" else "list"
    block, sign = space.find_block(name), LIST_FEATURES.index("clarity")
    assert block is not None
    mean, spread = TYPICAL["clarity"]
    at = block.start + sign
    found = []
    for value in (mean, mean + spread, mean + 100 * spread):
        seen = torch.zeros((1, 1, space.width))
        seen[0, 0, at] = value
        other = seen.clone()
        other[0, 0, at] = mean
        found.append((inputs(seen).signs_BSG - inputs(other).signs_BSG).abs().max().item())
    assert found == pytest.approx([0.0, 1.0, FARTHEST], abs=1e-4)


@every_network
def test_no_action_can_become_impossible(toy: dict[str, Any], make: Any) -> None:
    """The published agent ended with 100 % Terminate, from where no gradient leads back."""
    space = space_of(RetrievalControlEnv(**toy, actions="heads"))
    network = make(space, start=("Fuse",))
    with torch.no_grad():
        network.actor.bias.fill_(-1e6)
        network.actor.bias[space.actions.index("Terminate")] = 1e6
        shares = torch.softmax(network(torch.zeros((1, 3, space.width))).logits_BSA, dim=-1)
    assert shares.min() > 1e-9 and shares.max() > 0.99
