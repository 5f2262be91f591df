"""Faults put into a run of a network of choices: the doctor names each; a healthy run passes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine.choosing.choosing_toy import ARMS, registry
from session_toy import failures, same_weights

from searchrl.core.trajectory import View
from searchrl.engine.checks.doctor import CHOICE_CHECKS
from searchrl.engine.checks.report import State
from searchrl.engine.choosing import layout, policy
from searchrl.engine.choosing.chooser import Chooser
from searchrl.engine.choosing.policy import Choices
from searchrl.engine.choosing.rollout import ChoiceDriver
from searchrl.engine.learning.workers import ALONE
from searchrl.errors import CheckError
from searchrl.programs.setup.planning import plan_run
from searchrl.programs.setup.session import Session

Patch = pytest.MonkeyPatch
Inject = Callable[[Patch, Session], None]


def make_session(folder: Path, **more: Any) -> Session:
    settings: dict[str, Any] = {
        "env": "arms",
        "policy": "gru",
        "plugins": [ARMS],
        "run_dir": str(folder),
        "algorithm": {"beta": 0.1},
        "rollout": {"prompts_per_step": 2, "group_size": 2},
        "device": "cpu",
    }
    return Session(plan_run(settings | more), registry(), ALONE, lambda text: None)


def network_of(session: Session) -> Any:
    assert isinstance(session.policy, Choices)
    return session.policy.network


def hide_what_was_seen(patch: Patch, session: Session) -> None:
    """The ledger keeps another view than the sampler was shown."""
    record = ChoiceDriver._record

    def blind(self: ChoiceDriver, dialogue: Any, chose: Any) -> None:
        view = dialogue.view
        dialogue.view = View(bytes(len(view.values)), view.legal)
        record(self, dialogue, chose)
        dialogue.view = view

    patch.setattr(ChoiceDriver, "_record", blind)


def shift_choices(patch: Patch, session: Session) -> None:
    """The ledger keeps another action than was drawn."""
    record = ChoiceDriver._record
    patch.setattr(
        ChoiceDriver,
        "_record",
        lambda self, dialogue, chose: record(self, dialogue, chose._replace(logp=chose.logp - 1)),
    )


def update_without_mask(patch: Patch, session: Session) -> None:
    """Masked at rollout and not at update (the published control agent)."""
    masked = policy.masked_logps
    patch.setattr(
        policy, "masked_logps", lambda logits, legal, heat: masked(logits, legal | True, heat)
    )


def lose_masks(patch: Patch, session: Session) -> None:
    """The layout of an update says that everything was legal."""
    stack = layout.stack_views

    def without(episodes: Any, num_choices: int) -> Any:
        seen_BSD, legal_BSA = stack(episodes, num_choices)
        return seen_BSD, legal_BSA | True

    patch.setattr(layout, "stack_views", without)


def draw_colder(patch: Patch, session: Session) -> None:
    assert isinstance(session.sampler, ChoiceDriver)
    session.sampler.chooser.temperature = 0.5


def keep_the_version(patch: Patch, session: Session) -> None:
    session.policy.version += 3
    choose = Chooser.choose
    patch.setattr(
        Chooser, "choose", lambda self, *rest: [c._replace(version=0) for c in choose(self, *rest)]
    )


def round_logps(patch: Patch, session: Session) -> None:
    """The sampler computes in another precision: the ratio is nearly 1, not exactly."""
    choose = Chooser.choose
    patch.setattr(
        Chooser,
        "choose",
        lambda self, *rest: [c._replace(logp=round(c.logp, 5)) for c in choose(self, *rest)],
    )


def noisy_network(patch: Patch, session: Session) -> None:
    """Dropout that eval() does not switch off."""
    network = network_of(session)
    forward = type(network).forward

    def noisy(self: Any, seen_BSD: torch.Tensor) -> Any:
        return forward(self, torch.nn.functional.dropout(seen_BSD, 0.5, training=True))

    patch.setattr(type(network), "forward", noisy)


def detach_the_encoder(patch: Patch, session: Session) -> None:
    """The published agent's own layers had no gradient."""
    network = network_of(session)
    forward = network.gru.forward

    def detached(*args: Any) -> Any:
        hidden, state = forward(*args)
        return hidden.detach(), state

    patch.setattr(network.gru, "forward", detached)


def reference_is_the_policy(patch: Patch, session: Session) -> None:
    assert isinstance(session.policy, Choices)
    session.policy._frozen = session.policy.network


def choose_with_a_copy(patch: Patch, session: Session) -> None:
    """A sampler that keeps a copy of the weights, and takes no new ones."""
    assert isinstance(session.policy, Choices) and isinstance(session.sampler, ChoiceDriver)
    kept = replace(session.policy, network=copy.deepcopy(session.policy.network))
    session.sampler.chooser.policy = kept
    patch.setattr(ChoiceDriver, "sync", lambda self, policy: policy.version)


def lose_weights(patch: Patch, session: Session) -> None:
    """Something of the network is not in its state_dict."""
    state = Choices._state
    patch.setattr(
        Choices,
        "_state",
        lambda self: {n: p if n.startswith("gru") else p * 0 for n, p in state(self).items()},
    )


def nothing(patch: Patch, session: Session) -> None:
    """The fault is in the settings."""


FAULTS: dict[str, tuple[str, Inject]] = {
    "another view is kept": ("ledger", hide_what_was_seen),
    "another log-prob is kept": ("ledger", shift_choices),
    "no mask at update": ("masks", update_without_mask),
    "masks lost in the layout": ("masks", lose_masks),
    "drawn at another temperature": ("temperature", draw_colder),
    "weights of another version": ("batch", keep_the_version),
    "no mask in the ratio": ("ratio", update_without_mask),
    "noise in eval mode": ("dropout", noisy_network),
    "an encoder without gradient": ("gradients", detach_the_encoder),
    "reference that is the policy": ("reference", reference_is_the_policy),
    "a copy of the weights": ("follows", choose_with_a_copy),
    "weights that are not saved": ("saved", lose_weights),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_doctor_names_a_fault(fault: str, tmp_path: Path, monkeypatch: Patch) -> None:
    name, inject = FAULTS[fault]
    session = make_session(tmp_path)
    if fault == "reference that is the policy":
        session.policy.keep_reference()
    inject(monkeypatch, session)
    report = session.examine(is_thorough=True)
    assert name in failures(report), {one.name: one.verdict.says for one in report.checks}
    assert len(failures(report)[name].verdict.says) > 30
    with pytest.raises(CheckError, match=r"check '\w+': "):
        report.ensure_good()


def test_every_check_has_a_fault_that_it_finds() -> None:
    assert {name for name, _ in FAULTS.values()} | {"episodes"} == {c.name for c in CHOICE_CHECKS}


def test_environments_that_fail_are_named(tmp_path: Path, monkeypatch: Patch) -> None:
    session = make_session(tmp_path)
    env = session.worlds[0].ask(lambda env: env)

    def fail(self: Any, action: Any) -> Any:
        raise ValueError("no arm")

    monkeypatch.setattr(type(env), "step", fail)
    found = failures(session.examine(is_thorough=True))["episodes"].verdict
    assert "16 of the trial's episodes failed" in found.says and "no arm" in found.says


def test_a_ratio_up_to_rounding_is_a_warning(tmp_path: Path, monkeypatch: Patch) -> None:
    session = make_session(tmp_path)
    round_logps(monkeypatch, session)
    report = session.examine(is_thorough=False)
    (warned,) = report.of(State.WARNED)
    assert warned.name == "ratio" and "up to rounding only" in warned.verdict.says
    assert report.is_good


def test_frozen_parameters_are_told(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    network_of(session).actor.bias.requires_grad_(False)
    (warned,) = session.examine(is_thorough=True).of(State.WARNED)
    assert warned.name == "gradients" and "'actor.bias'" in warned.verdict.says


@pytest.mark.parametrize("settings", [{}, {"policy": "mlp"}, {"rollout": {"temperature": 0.7}}])
def test_a_healthy_run_passes_and_is_as_before(settings: dict[str, Any], tmp_path: Path) -> None:
    session = make_session(tmp_path, **settings)
    is_same, version = same_weights(session), session.policy.version
    drawn = torch.random.get_rng_state()
    report = session.examine(is_thorough=True)
    assert {one.verdict.state for one in report.checks} == {State.PASSED}, {
        one.name: one.verdict.says for one in report.checks
    }
    assert is_same() and session.policy.version == version
    assert torch.equal(drawn, torch.random.get_rng_state())
    figures = {one.name: one.verdict.figures for one in report.checks}
    assert figures["ratio"]["largest"] == 0.0 and figures["ratio"]["choices"] > 16


def test_the_start_of_training_looks_at_less(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    quick = session.examine(is_thorough=False)
    assert [one.name for one in quick.checks] == [c.name for c in CHOICE_CHECKS if c.is_quick]
    assert quick.is_good and quick.summary.startswith("7 passed")
