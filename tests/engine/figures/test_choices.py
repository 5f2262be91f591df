"""The shares of actions, counted by hand, and what a row says of each choice."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from engine.choosing.choosing_toy import make_driver, make_policy, make_world, requests

from searchrl.core.trajectory import Trajectory, TurnStop, View
from searchrl.engine.choosing.masks import masked_logps
from searchrl.engine.episodes.playing import Rollout
from searchrl.engine.episodes.records import rollout_record
from searchrl.engine.figures.metrics import summarise

FORCED, FREE = (True, False, False), (True, True, True)
NAMES = ("look", "left", "right")


@pytest.fixture(scope="module")
def played() -> list[Rollout]:
    """Episodes of `arms` with a network that is not trained."""
    groups = make_driver(make_policy()).run(requests(make_world(), 4))
    return [rollout for group in groups for rollout in group.rollouts]


def replayed(rollout: Rollout, *choices: tuple[int, tuple[bool, ...], tuple[float, ...]]) -> Any:
    """The same episode with a ledger of other choices: action, mask and probabilities."""
    ledger = Trajectory("r", rollout.trajectory.group_id, env="arms")
    for action, legal, probs in choices:
        saw = View(b"", legal)
        ledger.append_model(
            [action], [-1.0], version=0, reason=TurnStop.CHOICE, saw=saw, probs=probs
        )
    return replace(rollout, trajectory=ledger)


def test_shares_are_those_of_a_count_by_hand(played: list[Rollout]) -> None:
    ended = next(r for r in played if r.episode.stop_reason == "answered")
    cut = next(r for r in played if r.episode.stop_reason == "turn_limit")
    rollouts = [
        replayed(ended, (0, FORCED, (1.0, 0.0, 0.0)), (1, FREE, (0.2, 0.5, 0.3))),
        replayed(
            cut,
            (0, FORCED, (1.0, 0.0, 0.0)),
            (0, FREE, (0.6, 0.15, 0.25)),
            (0, (True, True, False), (0.95, 0.05, 0.0)),
        ),
    ]
    figures = summarise(rollouts)
    value = {name: metric["value"] for name, metric in figures.items()}
    assert [value[f"action/{name}"] for name in NAMES] == pytest.approx([0.8, 0.2, 0])
    assert [value[f"free_action/{name}"] for name in NAMES] == pytest.approx([2 / 3, 1 / 3, 0])
    assert value["ending_choices"] == pytest.approx(1 / 3)
    assert figures["least_action_p"] == {"value": 0.05, "n": 3}
    assert (figures["action/left"]["n"], figures["free_action/left"]["n"]) == (5, 3)
    assert not {"model_tokens", "invalid_turns", "format"} & set(figures)


def test_an_episode_of_forced_choices_says_nothing_of_the_policy(played: list[Rollout]) -> None:
    figures = summarise([replayed(played[0], (0, FORCED, (1.0, 0.0, 0.0)))])
    assert figures["action/look"]["value"] == 1
    assert not [name for name in figures if name.startswith("free_action/")]
    assert not {"ending_choices", "least_action_p"} & set(figures)


def test_probabilities_are_those_of_the_draw(played: list[Rollout]) -> None:
    """Of the weights that drew, so they have to be kept: those of the update are others."""
    policy = make_policy()
    for rollout in played[:4]:
        ledger = rollout.trajectory
        layout = policy.lay_out([_Row(ledger)], policy.device)
        logits_BSA = policy.run(layout.seen_BSD).logits_BSA
        expected = masked_logps(logits_BSA, layout.legal_BSA, 1.0).exp()[0, : len(ledger)]
        assert torch.equal(torch.tensor(ledger.probs), expected)
        assert all(
            sum(probs) == pytest.approx(1) and probs[action] > 0
            for probs, action in zip(ledger.probs, ledger.ids, strict=True)
        )


def test_a_row_holds_what_was_legal_how_probable_and_seen(played: list[Rollout]) -> None:
    rollout = played[0]
    row = json.loads(json.dumps(rollout_record(rollout, "train", None, max_seen=9)))
    assert [list(choice["probs"]) for choice in row["choices"]] == [
        [name for name, is_legal in zip(NAMES, view.legal, strict=True) if is_legal]
        for view in rollout.trajectory.views
    ]
    last, probs = row["choices"][-1], rollout.trajectory.probs[-1]
    assert list(last["probs"].values()) == pytest.approx(probs, rel=1e-5)
    assert base64.b64decode(last["seen"]) == rollout.trajectory.views[-1].values
    small = rollout_record(rollout, "train", None, max_seen=8)["choices"]
    assert {choice["seen"] for choice in small} == {None}
    assert [choice["probs"] for choice in small] == [choice["probs"] for choice in row["choices"]]


def test_a_ledger_refuses_probabilities_that_do_not_fit() -> None:
    ledger, saw = Trajectory("r", "g"), View(b"", FREE)
    with pytest.raises(ValueError, match="3 actions but 2 probabilities"):
        ledger.append_model(
            [0], [-1.0], version=0, reason=TurnStop.CHOICE, saw=saw, probs=(0.5, 0.5)
        )


class _Row:
    def __init__(self, ledger: Trajectory) -> None:
        self.ids, self.mask, self.views = list(ledger.ids), [True] * len(ledger), ledger.views
