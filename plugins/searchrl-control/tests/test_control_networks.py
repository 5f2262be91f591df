"""The networks: what they read, what they share, how they begin, and that all of them learns."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.features import CANDIDATE_FEATURES, LIST_FEATURES, SOURCES
from searchrl_control.environment.settings import HEADS, SETS, Action
from searchrl_control.training.networks import (
    Inputs,
    Network,
    NetworkSettings,
    Space,
    masked_logps,
    space_of,
)

from searchrl import ConfigError

every_network = pytest.mark.parametrize("name", ["linear", "mlp", "gru"])
every_set = pytest.mark.parametrize("actions", list(SETS))


def space_in(toy: dict[str, Any], actions: str) -> Space:
    return space_of(RetrievalControlEnv(**toy, actions=actions))


def seen_in(space: Space) -> torch.Tensor:
    return torch.randn((6, 5, space.width), generator=torch.Generator().manual_seed(0))


def made(name: str, space: Space, **settings: Any) -> Network:
    torch.manual_seed(0)
    return Network(space, NetworkSettings(name=name, **settings))


@every_network
def test_embeddings_of_texts_are_not_read(toy: dict[str, Any], name: str) -> None:
    space = space_in(toy, HEADS)
    network, seen = made(name, space), seen_in(space)
    other = seen.clone()
    for block in ("query", "found"):
        other[..., space.slices[block]] += 1
    with torch.no_grad():
        assert torch.equal(network(seen).logits_BSA, network(other).logits_BSA)


@every_network
def test_sources_share_the_scorer_of_candidates(toy: dict[str, Any], name: str) -> None:
    """The features of two sources are exchanged: so are their logits, and nothing else."""
    space = space_in(toy, HEADS)
    network = made(name, space)
    with torch.no_grad():
        network.actor.weight.zero_()
    block = space.slices["candidates"]
    seen, width = seen_in(space), len(CANDIDATE_FEATURES)
    first = slice(block.start, block.start + width)
    last = slice(block.stop - width, block.stop)
    other = seen.clone()
    other[..., first], other[..., last] = seen[..., last], seen[..., first]
    with torch.no_grad():
        one, two = network(seen).logits_BSA, network(other).logits_BSA
    narrow, hop = (space.actions.index(str(source)) for source in (SOURCES[0], SOURCES[-1]))
    assert torch.allclose(one[..., narrow], two[..., hop], atol=1e-6)
    assert torch.allclose(one[..., hop], two[..., narrow], atol=1e-6)
    assert not torch.allclose(one[..., hop], two[..., hop], atol=1e-4)
    for action in (Action.SEARCH, Action.TERMINATE):
        assert not one[..., space.actions.index(str(action))].any()


@every_network
def test_what_comes_later_changes_no_earlier_choice(toy: dict[str, Any], name: str) -> None:
    space = space_in(toy, HEADS)
    network, seen = made(name, space), seen_in(space)
    other = seen.clone()
    other[:, 3:] += 1
    with torch.no_grad():
        one, two = network(seen).logits_BSA, network(other).logits_BSA
    assert torch.equal(one[:, :3], two[:, :3]) and not torch.equal(one[:, 3:], two[:, 3:])


def steps_of(space: Space) -> torch.Tensor:
    """An episode of zeros that shows its step."""
    block = space.slices["step"]
    seen = torch.zeros((1, space.max_choices, space.width))
    for step in range(space.max_choices):
        seen[0, step, block.start + step] = 1
    return seen


@every_set
@every_network
def test_a_network_begins_as_its_sequence(toy: dict[str, Any], name: str, actions: str) -> None:
    space = space_in(toy, actions)
    names = ("Broad", "Narrow")
    network = made(name, space, start=names)
    usual = made(name, space)(steps_of(space)).logits_BSA
    assert usual.abs().max() < 0.7, "every action is about as likely"
    more = (network(steps_of(space)).logits_BSA - usual)[0]
    expected = torch.zeros_like(more)
    for step, action in enumerate([*names, "Terminate"], 1):
        expected[step, space.actions.index(action)] = 3.0
    assert torch.allclose(more, expected, atol=1e-5)
    assert not [key for key in network.state_dict() if "start" in key]


@pytest.mark.parametrize(
    ("names", "said"),
    [(("Folow",), "Did you mean 'Follow'"), (("Fuse",) * 5, "at most 4 can follow; got 5")],
)
def test_a_sequence_that_cannot_be_played_is_refused(
    toy: dict[str, Any], names: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        made("linear", space_in(toy, HEADS), start=names)


def test_the_floor_by_hand() -> None:
    """Softmax .75 and .25 of two legal actions: .8 * .75 + .1 = .7, and d log .7 / dz is
    .8 * .75 * .25 / .7. Far out, the softmax has underflowed, and the floor is there."""
    legal = torch.tensor([True, True, False])
    logits = torch.tensor([math.log(3), 0.0, 99.0], requires_grad=True)
    logps = masked_logps(logits, legal, 0.1)
    assert logps.exp().tolist() == pytest.approx([0.7, 0.3, 0.0]) and logps[2] == -torch.inf
    logps[0].backward()
    assert logits.grad.tolist() == pytest.approx([0.15 / 0.7, -0.15 / 0.7, 0.0])  # type: ignore[union-attr]
    far = torch.tensor([500.0, 0.0, 0.0], requires_grad=True)
    least = masked_logps(far, legal, 0.001)[1]
    least.backward()
    assert least.exp().item() == pytest.approx(0.001) and far.grad.isfinite().all()  # type: ignore[union-attr]
    assert masked_logps(far, torch.tensor([False, True, False]), 0.1)[1].item() == 0


def test_candidates_are_read_beside_each_other(toy: dict[str, Any]) -> None:
    """Their mean and their range are signs; the scorer reads each, and less their mean."""
    space = space_in(toy, HEADS)
    network, seen = made("linear", space), seen_in(space)
    width = len(CANDIDATE_FEATURES)
    usual = torch.tensor([*CANDIDATE_FEATURES.values()])
    shown = seen[..., space.slices["candidates"]].reshape(6, 5, len(SOURCES), width)
    known = ((shown - usual[:, 0]) / usual[:, 1]).clamp(-4, 4)
    signs, _ = network.inputs(seen)
    assert torch.allclose(signs[..., -2 * width : -width], known.mean(dim=2), atol=1e-5)
    spread = known.max(dim=2).values - known.min(dim=2).values
    assert torch.allclose(signs[..., -width:], spread, atol=1e-5)
    with torch.no_grad():
        network.actor.weight.zero_()
        network.scorer.weight.zero_()  # type: ignore[operator, union-attr]
        network.scorer.weight[0, [0, width]] = torch.tensor([0.25, 0.5])  # type: ignore[index, union-attr]
        logits = network(seen).logits_BSA
    first = known[..., 0]
    expected = 8 * torch.tanh((0.75 * first - 0.5 * first.mean(dim=2, keepdim=True)) / 8)
    places = [space.actions.index(str(source)) for source in SOURCES]
    assert torch.allclose(logits[..., places], expected, atol=1e-5)


@every_set
def test_signs_are_read_as_how_far_they_are_from_what_is_usual(
    toy: dict[str, Any], actions: str
) -> None:
    space = space_in(toy, actions)
    inputs = Inputs(space)
    block = space.slices["searches" if actions == HEADS else "list"]
    mean, spread = LIST_FEATURES["clarity"]
    at = block.start + [*LIST_FEATURES].index("clarity")
    found = []
    for value in (mean, mean + spread, mean + 100 * spread):
        seen = torch.zeros((1, 1, space.width))
        seen[0, 0, at] = value
        other = seen.clone()
        other[0, 0, at] = mean
        found.append((inputs(seen)[0] - inputs(other)[0]).abs().max().item())
    assert found == pytest.approx([0.0, 1.0, 4.0], abs=1e-4)
