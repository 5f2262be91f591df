"""Alarms on recorded curves: silent on every healthy run, and each broken run is named early."""

from __future__ import annotations

import pytest
from recorded_curves import play, read_runs

HEALTHY = read_runs("healthy")
BROKEN = read_runs("broken")

NAMED = {
    # run: {alarm: (first step of the trouble, the alarm sounds within so many steps of it)}
    "constant-reward": {"constant_reward": (1, 10)},
    "nothing-found": {"retrieval_failure": (1, 3)},
    "no-update": {"divergence": (1, 3)},
    "failing-search": {"retrieval_failure": (3, 3)},
    "noisy-sampler": {"mismatch": (1, 3)},
    "cut-turns": {"truncation": (1, 5)},
    "rate-too-high": {
        "truncation": (3, 5),
        "format_collapse": (3, 5),
        "search_collapse": (3, 9),
        "length_collapse": (8, 5),
        "constant_reward": (10, 10),
    },
    "rate-too-high-kl": {
        "truncation": (2, 5),
        "format_collapse": (2, 6),
        "search_collapse": (2, 6),
        "entropy_collapse": (6, 5),
        "length_collapse": (6, 5),
    },
    "one-component": {"search_collapse": (6, 5), "one_component": (4, 9)},
    "form-alone": {"search_collapse": (24, 5), "constant_reward": (34, 10)},
}


@pytest.mark.parametrize("name", HEALTHY)
def test_no_alarm_sounds_in_a_healthy_run(name: str) -> None:
    assert [(one["step"], one["alarm"], one["what"]) for one in play(HEALTHY[name])] == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_run_is_named_early(name: str) -> None:
    heard = {one["alarm"]: one for one in play(BROKEN[name])}
    assert {*heard} == {*NAMED[name]}, [(o["step"], o["alarm"], o["what"]) for o in heard.values()]
    for alarm, (since, within) in NAMED[name].items():
        assert heard[alarm]["step"] < since + within, heard[alarm]
        assert since <= heard[alarm]["since"] <= heard[alarm]["step"], heard[alarm]
