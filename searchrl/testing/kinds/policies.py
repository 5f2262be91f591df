"""Criteria of policies without tokens, N1 to N6: what a network of choices must do.

Owns the space on which a network is tried: that of an environment of choices which its plugin
registers, or an invented one. Imports torch. Shapes: B episodes, S choices, D numbers seen, A
actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from searchrl.contracts import CHOICE_TURNS, ChoiceSpace, Chosen
from searchrl.engine.choosing.masks import run_episodes
from searchrl.envs.choices import find_space
from searchrl.testing.criteria import NotApplicable, Problem, criterion
from searchrl.testing.kit.subject import Subject

INVENTED = ChoiceSpace((("query", 8), ("step", 1), ("scores", 3)), ("search", "narrow", "stop"))
"""The space for a network whose plugin registers no environment of choices."""

_NUM_EPISODES, _NUM_CHOICES = 8, 4


def _spaces(subject: Subject) -> Iterator[ChoiceSpace]:
    """The spaces of the plugin's own environments that can be made, then the invented one."""
    for entry in subject.registry.entries():
        if entry.owner is subject.entry.owner and entry.turns == CHOICE_TURNS:
            env = Subject(subject.registry, entry)
            with suppress(Exception, SystemExit):  # its own criteria say so
                made: Any = env.make(protocol=env.grammar.protocol, retriever=env.retriever)
                yield find_space(made, entry.title)
    yield INVENTED


def _make(subject: Subject) -> tuple[nn.Module, ChoiceSpace]:
    """The network on the first space; with the same weights each time."""
    space = next(_spaces(subject))
    torch.manual_seed(0)
    made: Any = subject.make(space)
    if not isinstance(made, nn.Module):
        raise NotApplicable("it makes no torch.nn.Module (N1)")
    return made, space


def _seen(space: ChoiceSpace) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn((_NUM_EPISODES, _NUM_CHOICES, space.width), generator=generator)


def _forward(network: nn.Module) -> object:
    """Where the network says what it chooses."""
    return type(network).forward


@criterion("N1")
def _is_made(subject: Subject) -> Iterator[Problem]:
    space = next(_spaces(subject))
    made: Any = subject.make(space)
    if not isinstance(made, nn.Module):
        what = f"the factory makes a {type(made).__name__}; expected a torch.nn.Module"
        yield Problem(what, type(made))
        return
    parameters = list(made.parameters())
    if not parameters:
        yield Problem("it has no parameters, so nothing of it can be trained", type(made))
    if any(p.dtype not in (torch.float32, torch.float64) for p in parameters):
        kinds = ", ".join(sorted({str(p.dtype) for p in parameters}))
        yield Problem(f"its parameters are of {kinds}; expected float32", type(made))


@criterion("N2")
def _says_what_it_chooses(subject: Subject) -> Iterator[Problem]:
    network, space = _make(subject)
    try:
        made = run_episodes(network.eval(), _seen(space))
    except ValueError as error:
        yield Problem(str(error), _forward(network))
        return
    count = made.logits_BSA.shape[-1]
    if count != space.num_actions:
        what = f"it has logits for {count} actions, and the space has {space.num_actions}"
        yield Problem(what, _forward(network))
    for name, tensor in zip(Chosen._fields, made, strict=True):
        if tensor is not None and not bool(torch.isfinite(tensor).all()):
            yield Problem(f"its {name} are not all finite", _forward(network))


@criterion("N3")
def _never_looks_ahead(subject: Subject) -> Iterator[Problem]:
    network, space = _make(subject)
    network.eval()
    seen_BSD = _seen(space)
    with torch.no_grad():
        before = run_episodes(network, seen_BSD)
        for place in range(1, _NUM_CHOICES):
            other_BSD = seen_BSD.clone()
            other_BSD[:, place:] += 1.0
            after = run_episodes(network, other_BSD)
            for name, one, two in zip(Chosen._fields, before, after, strict=True):
                if one is None or two is None:
                    continue
                if not torch.equal(one[:, :place], two[:, :place]):
                    what = f"its {name} of choice {place - 1} change with what is seen later"
                    yield Problem(what, _forward(network))
                    return


@criterion("N4")
def _says_the_same_again(subject: Subject) -> Iterator[Problem]:
    network, space = _make(subject)
    network.eval()
    seen_BSD = _seen(space)
    with torch.no_grad():
        first, again = run_episodes(network, seen_BSD), run_episodes(network, seen_BSD)
    if not torch.equal(first.logits_BSA, again.logits_BSA):
        yield Problem("asked again, it says something else", _forward(network))


@criterion("N5")
def _learns_with_all_of_it(subject: Subject) -> Iterator[Problem]:
    network, space = _make(subject)
    made = run_episodes(network.eval(), _seen(space))
    generator = torch.Generator().manual_seed(2)
    weight_BSA = torch.randn(made.logits_BSA.shape, generator=generator)
    loss = (torch.log_softmax(made.logits_BSA, dim=-1) * weight_BSA).sum()
    if made.value_BS is not None:
        loss = loss + made.value_BS.square().sum() + made.value_BS.sum()
    loss.backward()
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            yield Problem(f"its parameter '{name}' is frozen", type(network))
        elif parameter.grad is None or not bool(parameter.grad.any()):
            yield Problem(f"its parameter '{name}' gets no gradient", _forward(network))


@criterion("N6")
def _survives_saving(subject: Subject) -> Iterator[Problem]:
    network, space = _make(subject)
    seen_BSD = _seen(space)
    torch.manual_seed(7)
    other: Any = subject.make(space)
    other.load_state_dict(network.state_dict())
    with torch.no_grad():
        one = run_episodes(network.eval(), seen_BSD).logits_BSA
        two = run_episodes(other.eval(), seen_BSD).logits_BSA
    if not torch.equal(one, two):
        what = "another instance with the weights of its state_dict() says something else"
        yield Problem(what, type(network))
