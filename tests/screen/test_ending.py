"""How a run ends on the screen: one sentence, the table, what to try, how to go on, its alarms."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from screens import STEP, terminal, text

from searchrl.screen.console import (
    ConsoleObserver,
    make_console,
)
from searchrl.screen.ending import describe_result
from searchrl.statistics import exact, proportion

BEFORE = {"em": proportion(1, 100), "searched": proportion(0, 100)}


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            BEFORE,
            {"em": proportion(96, 100), "searched": proportion(100, 100)},
            "exact match 1 % → 96 %; it now searches in every episode",
        ),
        (
            BEFORE,
            {"em": proportion(3, 100), "searched": proportion(0, 100)},
            "exact match 1 % → 3 %, which may be chance (the 95 % intervals overlap); "
            "it never searches",
        ),
        (
            BEFORE,
            {"em": proportion(30, 100), "searched": proportion(80, 100)},
            "exact match 1 % → 30 %; it now searches in 80 % of the episodes (0 % before)",
        ),
        (BEFORE, BEFORE, "exact match 1 %, as before; it never searches"),
        ({}, {"em": proportion(999, 1000)}, "exact match 99.9 % on held-out tasks"),
        ({"env": exact(0.0)}, {"env": exact(0.75)}, "the game's own reward 0.00 → 0.75"),
        ({}, {"passive": exact(1.0)}, ""),
    ],
)
def test_a_run_ends_with_one_sentence(before: Any, after: Any, sentence: str) -> None:
    assert describe_result(before, after) == sentence


def test_the_end_is_the_sentence_and_the_time_then_the_table(tmp_path: Path) -> None:
    for console in (make_console(io.StringIO()), terminal()):
        with ConsoleObserver(console) as observer:
            observer.begin(1)
            observer.evaluation("before", 0, BEFORE)
            observer.step(1, 1, STEP)
            observer.evaluation("after", 1, {"em": proportion(96, 100)})
            observer.started -= 75
            observer.done(tmp_path, {})
        shown = text(console)
        sentence = shown.index("exact match 1 % → 96 %")
        assert shown.index("took 1 min 15 s") > sentence
        assert "held out, after" in shown[sentence:] and str(tmp_path)[:20] in shown[sentence:]


def test_how_to_go_on_is_the_last_line() -> None:
    """The table came below it."""
    console = terminal()
    with ConsoleObserver(console) as observer:
        observer.begin(3)
        observer.step(1, 3, STEP)
        observer.phase("sample", 1, 4)
        observer.last_words("stopped after step 1; continue with: searchrl train --resume runs/x")
    lines = [line for line in text(console).splitlines() if line.strip()]
    assert "stopped after step 1; continue with" in lines[-1]


ALARM = {
    "step": 12, "alarm": "truncation", "severity": "warning", "action": "warn", "since": 8,
    "what": "80 % of the episodes were cut", "why": "a cut episode has no answer",
    "tries": ["raise the limit", "a cold start"],
}  # fmt: skip


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_alarm_is_shown_at_once_with_why_and_what_to_try(is_terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=100, no_color=True)
    with ConsoleObserver(console) as observer:
        observer.alarm(ALARM)
        shown = text(console)
    for part in ("truncation", ALARM["what"], ALARM["why"], *ALARM["tries"]):
        assert part in re.sub(r"\x1b\[[0-9;]*m", "", shown), shown
