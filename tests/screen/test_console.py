"""What is shown: figures, sparklines, the pair of episodes, the live table, colours."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from screens import STEP, metrics, terminal, text

from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.rollout import Rollout
from searchrl.programs.evaluate import evaluate
from searchrl.screen.console import (
    ConsoleObserver,
    choose_pair,
)
from searchrl.screen.figures import (
    chosen_keys,
    format_duration,
    format_metric,
    format_value,
)
from searchrl.screen.transcript import colour_turn
from searchrl.statistics import exact, proportion


@pytest.fixture(scope="module")
def episodes() -> dict[str, tuple[Rollout, ...]]:
    settings = {"eval": {"num_tasks": 12}}
    return {
        script: evaluate({**settings, "policy": f"scripted:{script}"}).rollouts
        for script in ("expert", "passive")
    }


def test_components_of_plugins_are_shown_and_bookkeeping_is_not() -> None:
    assert chosen_keys([STEP]) == [
        "reward", "format", "em", "my_reward", "em/lookup", "passive",
        "kl", "clip_frac", "entropy", "dead_groups", "loss", "tokens_per_s",
    ]  # fmt: skip


def test_trouble_is_shown_as_soon_as_there_is_some() -> None:
    assert "failed" in chosen_keys([STEP, {**STEP, "failed": exact(0.1)}])


def test_numbers_keep_the_digits_that_mean_something() -> None:
    assert format_value("em", 0.95349) == "0.953" and format_value("kl", 0.00012) == "1.2e-04"
    assert format_value("tokens_per_s", 12345.6) == "12,346"
    assert format_metric("em", {"em": proportion(0, 4)}) == "0.000 [0.000, 0.490]"
    assert format_metric("em", {"em": proportion(0, 4)}, is_bare=True) == "0.000"
    assert format_metric("lr", metrics(lr=0.5)) == "0.500"
    old = {"lr": {"value": 0.5, "low": 0.5, "high": 0.5, "n": 1}}
    assert format_metric("lr", old) == "0.500"  # type: ignore[arg-type]
    durations = [format_duration(seconds) for seconds in (8.4, 75, 3700)]
    assert durations == ["8 s", "1 min 15 s", "1 h 1 min"]


def rows_of(rollouts: Sequence[Rollout]) -> list[dict[str, Any]]:
    return [rollout_record(rollout, "eval", {}) for rollout in rollouts]


def test_pair_shows_one_task_that_was_wrong_and_is_right(episodes: dict[str, tuple[Rollout, ...]]):
    pair = choose_pair(rows_of(episodes["passive"]), rows_of(episodes["expert"]))
    assert pair is not None and pair[0] is not None
    before, after = pair
    assert before["task"]["id"] == after["task"]["id"]
    assert before["scores"]["em"] == 0 and after["scores"]["em"] == 1
    assert choose_pair((), ()) is None
    assert choose_pair((), rows_of(episodes["expert"])) is not None


def test_colouring_loses_no_text() -> None:
    for turn in ("<think>a</think>\n<search>q</search>", "<b>x [red]y[/red] </b", "", "<answer>"):
        assert colour_turn(turn).plain == turn


def test_live_table_shows_every_promised_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", itertools.count(0.0, 3.0).__next__)
    console = terminal()
    with ConsoleObserver(console, details=True) as observer:
        observer.begin(3)
        observer.evaluation("before", 0, {"reward": exact(1), "passive": proportion(3, 4)})
        observer.step(1, 3, STEP)
        observer.step(2, 3, {**STEP, "reward": exact(2.0)})
        observer.phase("evaluate", 4, 4)
        observer.evaluation("during", 2, {"reward": exact(1.25), "passive": proportion(1, 4)})
        observer.phase("sample", 5, 16)
    shown = text(console)
    for part in ("my_reward", "KL to start", "step 2/3", "67 % of the run", "ETA", "sample 5/16",
                 "held out, before", "held out, step 2", "0.250 [0.046, 0.699]"):  # fmt: skip
        assert part in shown, part


def test_live_display_ends_when_the_run_fails() -> None:
    console = terminal()
    with pytest.raises(RuntimeError), ConsoleObserver(console) as observer:
        observer.phase("sample", 0, 4)
        raise RuntimeError
    assert text(console).rstrip().endswith("\x1b[?25h")  # the cursor is back
