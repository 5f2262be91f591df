"""The networks: what they read, what they share, and that all of them learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from searchrl_control.environment.actions import HEADS, SETS, Action
from searchrl_control.environment.candidates import CANDIDATE_FEATURES
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.heads import SOURCES
from searchrl_control.policies.networks import (
    Network,
    make_gru,
    make_linear,
    make_mlp,
    make_network,
)
from searchrl_control.policies.space import Space, row_of, space_of

from searchrl import ConfigError

B, S = 6, 5
NETWORKS = (make_linear, make_mlp, make_gru)

every_network = pytest.mark.parametrize("make", NETWORKS)
every_set = pytest.mark.parametrize("actions", list(SETS))


def space_in(toy: dict[str, Any], actions: str) -> Space:
    return space_of(RetrievalControlEnv(**toy, actions=actions))


def seen_in(space: Space) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn((B, S, space.width), generator=generator)


def made(make: Any, space: Space, **settings: Any) -> Network:
    torch.manual_seed(0)
    network = make(space, **settings)
    assert isinstance(network, Network)
    return network.eval()


@every_set
@every_network
def test_at_the_start_every_legal_action_is_about_as_likely(
    toy: dict[str, Any], make: Any, actions: str
) -> None:
    env = RetrievalControlEnv(**toy, actions=actions)
    network = made(make, space_of(env))
    rows = []
    shown, _ = env.reset(options={"split": "train", "index": 0})
    for _ in range(3):
        rows.append(torch.from_numpy(row_of(env, shown)))
        shown, *_ = env.step(env.action_names.index("Search" if len(rows) == 1 else "Broad"))
    with torch.no_grad():
        chosen = network(torch.stack(rows)[None])
    shares = torch.softmax(chosen.logits_BSA, dim=-1)
    assert shares.min() > 0.5 / len(env.actions) and shares.max() < 2 / len(env.actions)
    assert chosen.value_BS.shape == (1, 3)


@every_set
@every_network
def test_layers_that_read_embeddings_get_a_gradient(
    toy: dict[str, Any], make: Any, actions: str
) -> None:
    """The published encoder was called without a gradient: it never learned anything."""
    space = space_in(toy, actions)
    network = made(make, space, embedding=4)
    chosen = network(seen_in(space))
    torch.log_softmax(chosen.logits_BSA, dim=-1)[..., 0].sum().backward()
    encoders = [*network.inputs.encoders.parameters()]
    assert len(encoders) == 4  # the weights and biases for the question and for what was found
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in encoders)
    before = [p.detach().clone() for p in encoders]
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    assert all(not torch.equal(p, was) for p, was in zip(encoders, before, strict=True))


@every_network
def test_embeddings_are_read_only_if_they_are_wanted(toy: dict[str, Any], make: Any) -> None:
    space = space_in(toy, HEADS)
    block = space.find_block("query")
    assert block is not None
    seen = seen_in(space)
    other = seen.clone()
    other[..., block] += 1
    with torch.no_grad():
        for embedding, is_equal in ((0, True), (4, False)):
            network = made(make, space, embedding=embedding)
            one, two = network(seen).logits_BSA, network(other).logits_BSA
            assert torch.equal(one, two) is is_equal


@every_network
def test_sources_share_the_scorer_of_candidates(toy: dict[str, Any], make: Any) -> None:
    """What two sources show is exchanged: so is what speaks for them, and for nothing else."""
    space = space_in(toy, HEADS)
    network = made(make, space)
    with torch.no_grad():
        network.actor.weight.zero_()
    block = space.find_block("candidates")
    assert block is not None
    seen = seen_in(space)
    width = len(CANDIDATE_FEATURES)
    first = slice(block.start, block.start + width)
    last = slice(block.stop - width, block.stop)
    other = seen.clone()
    other[..., first], other[..., last] = seen[..., last], seen[..., first]
    with torch.no_grad():
        one, two = network(seen).logits_BSA, network(other).logits_BSA
    narrow, hop = (space.actions.index(str(source)) for source in (SOURCES[0], SOURCES[-1]))
    assert torch.allclose(one[..., narrow], two[..., hop], atol=1e-6)
    assert torch.allclose(one[..., hop], two[..., narrow], atol=1e-6)
    kept = [n for n in range(space.num_actions) if n not in (narrow, hop)]
    assert torch.allclose(one[..., kept], two[..., kept], atol=1e-6)
    assert not torch.allclose(one[..., hop], two[..., hop], atol=1e-4)
    for action in (Action.SEARCH, Action.TERMINATE):
        assert not one[..., space.actions.index(str(action))].any()


@every_network
def test_another_space_is_read_as_it_is(make: Any) -> None:
    space = Space((("candidates", 7), ("query", 3)), ("left", "right"))
    chosen = made(make, space)(seen_in(space))
    assert chosen.logits_BSA.shape == (B, S, 2)
    alone = Space((("query", 3),), ("left", "right"))
    network = made(make, alone)
    assert network.inputs.width == 3


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ({"name": "mpl"}, "Did you mean 'mlp'"),
        ({"name": "mlp", "hidden": 0}, r"network.hidden = 0: .*greater than or equal to 1"),
        ({"name": "linear", "hidden": 4}, r"network.hidden.*takes embedding, start, strength"),
    ],
)
def test_a_network_that_cannot_be_made_is_refused(described: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_network(Space((("query", 3),), ("left", "right")), described)
