"""Alarms on made-up curves: trouble that a short run of the tiny model does not show.

Each begins as a healthy run, `healthy_history`, whose curves are bent from a step on.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from searchrl.alarms.collapse import (
    EntropyCollapse,
    FormatCollapse,
    LengthCollapse,
    LikelihoodCollapse,
    SearchCollapse,
)
from searchrl.alarms.curves import best_mean, is_learning, streak
from searchrl.alarms.episode import RetrievalFailure, Truncation
from searchrl.alarms.reward import ConstantReward, DeadGroups, OneComponent
from searchrl.alarms.update import Divergence, KlBlowUp, Mismatch
from searchrl.contracts.history import History, Point
from searchrl.contracts.watching import Alarm
from searchrl.engine.model.tolerance import tolerance_of
from searchrl.testing import make_history
from searchrl.testing.kit.histories import healthy_history

BEGINS = 21
"""The first step of the trouble."""


def bent(upto: int, **curves: Callable[[int, float], float | None]) -> History:
    """The healthy history up to a step, with curves bent from step `BEGINS` on.

    A curve is given the number of its bad step (from 0) and the healthy value; None: not measured.
    """
    whole = healthy_history(upto)
    made = History(whole.settings, weights=whole.weights)
    names = [*whole._curves["train"]]
    for step in whole.steps():
        values = {name: whole.at(step, name) for name in names}
        if step >= BEGINS:
            for name, bend in curves.items():
                values[name] = bend(step - BEGINS, values.get(name) or 0.0)
        metrics = {name: {"value": v, "n": 64} for name, v in values.items() if v is not None}
        made.add(step, "train", metrics)
        if step in whole.steps("during"):
            em = whole.at(step, "em", "during")
            made.add(step, "during", {"em": {"value": em, "low": em - 0.1, "high": em + 0.1}})
    return made


def flat(value: float | None) -> Callable[[int, float], float | None]:
    return lambda number, healthy: value


def falling(number: int, healthy: float) -> float:
    """To nothing within five steps."""
    return max(0.0, healthy * (1 - (number + 1) / 5))


def lost(number: int, healthy: float) -> float:
    """The reward of a run that falls below its start."""
    return max(0.2, healthy - 0.3 * (number + 1))


CASES = [
    # alarm, the bent curves, sounds within so many steps, what it says
    (Divergence(), {"nonfinite_frac": flat(0.5)}, 3, "50 % of the trained tokens"),
    (Divergence(), {"nonfinite_figures": flat(2.0), "loss": flat(None)}, 3, "2 figures of the"),
    (Divergence(), {"skipped_steps": flat(1.0), "grad_norm": flat(None)}, 3, "was skipped"),
    (Mismatch(), {"mismatch": flat(8e-3)}, 3, "0.008 nats per token apart"),
    (Mismatch(), {"mismatch": flat(3e-5)}, 3, "it was 2e-07 in the first 5 steps"),
    (KlBlowUp(), {"kl": lambda n, kl: kl + 1.5 * (n + 1)}, 5, "away from the starting policy"),
    (KlBlowUp(), {"approx_kl": flat(0.5)}, 3, "away from the policy that sampled"),
    (EntropyCollapse(), {"entropy": flat(1e-3), "reward": lost}, 8, "the entropy fell from 0.3"),
    (EntropyCollapse(), {"entropy": flat(4.0), "reward": lost}, 8, "the entropy rose from 0.3"),
    (FormatCollapse(), {"format": falling}, 8, "the format fell from 0.9"),
    (SearchCollapse(), {"searched": falling}, 10, "hardly searches any more"),
    (LengthCollapse(), {"model_tokens": falling, "reward": lost}, 10, "episodes shrank from 3"),
    (
        LengthCollapse(),
        {"model_tokens": flat(1000.0), "turns": flat(2.0), "reward": lost},
        8,
        "run into their limit of 500 tokens",
    ),
    (LikelihoodCollapse(), {"good_logp": lambda n, x: x - 0.1 * (n + 1)}, 10, "from -0."),
    (DeadGroups(), {"dead_groups": flat(1.0)}, 10, "the same reward, in every group"),
    (ConstantReward(), {"reward": flat(1.0), "dead_groups": flat(1.0)}, 10, "the reward 1"),
    (Truncation(), {"truncated": flat(0.9)}, 5, "90 % of the episodes were cut"),
    (RetrievalFailure(), {"failed_retrieval": flat(0.1)}, 3, "failed in 10 % of the episodes"),
    (RetrievalFailure(), {"empty_searches": flat(0.97)}, 3, "97 % of the searches found nothing"),
]


@pytest.mark.parametrize(
    ("alarm", "curves", "within", "says"), CASES, ids=lambda one: type(one).__name__
)
def test_it_names_its_trouble_early_and_not_before(
    alarm: Alarm, curves: dict[str, Callable[[int, float], float]], within: int, says: str
) -> None:
    assert alarm.check(bent(BEGINS - 1, **curves)) is None
    heard = [
        (upto, alert)
        for upto in range(BEGINS, BEGINS + within)
        if (alert := alarm.check(bent(upto, **curves))) is not None
    ]
    assert heard, f"silent for {within} steps"
    step, alert = heard[0]
    assert says in alert.what, alert.what
    assert BEGINS <= alert.since <= step
    assert step >= BEGINS + 2, "a single bad step is noise"


def test_one_component_that_carries_the_reward_while_held_out_em_stands_still() -> None:
    history = History(weights={"": {"format": 1.0, "searched": 0.5, "em": 1.0}})
    alarm = OneComponent()
    heard = []
    for step in range(1, 41):
        values = {"format": 0.9, "searched": min(1.0, 0.1 + 0.04 * step), "em": 0.1}
        reward = values["format"] + 0.5 * values["searched"] + values["em"]
        history.add(
            step, "train", {k: {"value": v} for k, v in (values | {"reward": reward}).items()}
        )
        if step % 10 == 0:
            em = {"value": 0.1 + 0.001 * step, "low": 0.05, "high": 0.2}
            history.add(step, "during", {"em": em})
        if alert := alarm.check(history):
            heard.append((step, alert))
    step, alert = heard[0]
    assert step == 30, "the third evaluation"
    assert "100 % of it from 'searched'" in alert.what
    assert "0.11 at step 10, 0.13 at step 30" in alert.what
    history.add(41, "during", {"em": {"value": 0.5, "low": 0.4, "high": 0.6}})
    assert alarm.check(history) is None, "held-out em rises"


def test_skips_of_a_loss_scale_that_is_still_falling_are_no_divergence() -> None:
    skipped = {"skipped_steps": [1.0] * 8, "loss": [0.1] * 8}
    scales = [2.0**n for n in range(16, 8, -1)]
    assert Divergence().check(make_history(loss_scale=scales, **skipped)) is None
    alert = Divergence().check(make_history(loss_scale=[2.0**-14] * 8, **skipped))
    assert alert is not None and alert.since == 1
    assert (alert.severity, alert.action) == ("critical", "stop")


def test_rounding_of_a_short_dtype_is_no_mismatch() -> None:
    for dtype, gap, is_heard in (
        ("float32", 1.2e-3, True),
        ("bfloat16", 1.2e-3, False),
        ("bfloat16", 5e-2, True),
        ("float16", 5e-3, True),
    ):
        history = History({"model": {"dtype": dtype}})
        made = make_history(mismatch=[gap] * 4, history=history)
        assert (Mismatch().check(made) is not None) == is_heard, (dtype, gap)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_gap_is_heard_well_before_it_stops_a_run(dtype: str) -> None:
    """The limits of the alarm and of the batch check stand on two floors."""
    gap = 0.6 * tolerance_of(getattr(torch, dtype)).mean
    made = make_history(mismatch=[gap] * 4, history=History({"model": {"dtype": dtype}}))
    assert Mismatch().check(made) is not None


def test_noise_of_a_hundredth_that_begins_later_is_heard_in_bfloat16_too() -> None:
    history = History({"model": {"dtype": "bfloat16"}})
    made = make_history(mismatch=[1.2e-3] * 10 + [8e-3] * 3, history=history)
    alert = Mismatch().check(made)
    assert alert is not None and alert.since == 11


def test_entropy_and_length_may_fall_in_a_run_that_learns() -> None:
    values = {"entropy": [0.4] * 10 + [0.001] * 10, "model_tokens": [400.0] * 10 + [20.0] * 10}
    learns = make_history(reward=[0.1 * n for n in range(20)], **values)
    assert is_learning(learns)
    stands = make_history(reward=[1.0, 1.1] * 10, **values)
    for alarm in (EntropyCollapse(), LengthCollapse()):
        assert alarm.check(learns) is None
        assert alarm.check(stands) is not None


def test_a_run_that_loses_what_it_won_does_not_learn() -> None:
    rise = [0.1 * n for n in range(1, 16)]
    assert is_learning(make_history(reward=rise))
    assert not is_learning(make_history(reward=[*rise, *[0.7] * 5]))
    assert not is_learning(make_history(reward=[1.0] * 20)), "a reward that never moves"


def test_dead_groups_leave_a_constant_reward_to_its_own_alarm() -> None:
    constant = make_history(reward=[1.0] * 12, dead_groups=[1.0] * 12)
    assert DeadGroups().check(constant) is None and ConstantReward().check(constant) is not None
    mixed = make_history(reward=[1.0, 1.2] * 6, dead_groups=[1.0] * 12)
    assert DeadGroups().check(mixed) is not None and ConstantReward().check(mixed) is None
    alive = make_history(reward=[1.0] * 12, dead_groups=[0.5] * 12)
    assert ConstantReward().check(alive) is None, "means may be equal by chance"


def test_a_task_of_a_mixture_is_named() -> None:
    history = History(tasks=("corpus", "game"))
    curves = {"truncated": [0.3] * 6, "corpus/truncated": [0.9] * 6, "game/truncated": [0.0] * 6}
    alert = Truncation().check(make_history(history=history, **curves))
    assert alert is not None and "of the episodes of task 'corpus'" in alert.what


def test_windows_and_streaks() -> None:
    points = [Point(n, v) for n, v in enumerate([1.0, 5.0, 3.0, 0.0, 0.0], start=1)]
    assert best_mean(points, 2) == 4.0 and best_mean(points, 9) == 1.8
    assert [p.step for p in streak(points, lambda p: p.value < 1)] == [4, 5]
    assert streak(points, lambda p: p.value > 1) == []
