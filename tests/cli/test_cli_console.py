"""What is shown: figures, sparklines, the pair of episodes, the live table, colours."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from searchrl.cli.screen.console import (
    DEAD_HINT,
    LOSS_HINT,
    ConsoleObserver,
    choose_pair,
    make_console,
)
from searchrl.cli.screen.figures import (
    format_metric,
    format_seconds,
    format_value,
    shown_keys,
    sparkline,
)
from searchrl.cli.screen.transcript import colour_turn, render_rollout
from searchrl.engine.episodes.metrics import exact, proportion
from searchrl.engine.episodes.rollout import Rollout
from searchrl.programs.evaluate import evaluate


def metrics(**values: float) -> dict[str, Any]:
    return {key.replace("__", "/"): exact(value) for key, value in values.items()}


STEP = metrics(
    reward=1.5, format=1, em=0.5, my_reward=0.3, passive=0.25, turns=2, failed=0, em__lookup=0.5,
    invalid_turns=0, loss=0, kl=0.0012, clip_frac=0.01, entropy=0.8, dead_groups=0.5,
    tokens_per_s=1234, lr=1e-4, ratio_mean=1, grad_norm=1.5,
)  # fmt: skip


def terminal(width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=50)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def episodes() -> dict[str, tuple[Rollout, ...]]:
    settings = {"eval": {"num_tasks": 12}}
    return {
        script: evaluate({**settings, "policy": f"scripted:{script}"}).rollouts
        for script in ("expert", "passive")
    }


def test_text_in_brackets_or_colons_is_shown_as_it_is() -> None:
    """A folder called `[old]` was left out, and an answer `:key:` became a picture."""
    console = make_console(io.StringIO())
    console.print("runs/[old] on x, :key:")
    assert text(console) == "runs/[old] on x, :key:\n"


def test_components_of_plugins_are_shown_and_bookkeeping_is_not() -> None:
    assert shown_keys([STEP]) == [
        "reward", "format", "em", "my_reward", "em/lookup", "passive",
        "kl", "clip_frac", "entropy", "dead_groups", "loss", "tokens_per_s",
    ]  # fmt: skip


def test_trouble_is_shown_as_soon_as_there_is_some() -> None:
    assert "failed" in shown_keys([STEP, {**STEP, "failed": exact(0.1)}])


def test_several_environments_show_what_each_earns() -> None:
    both = STEP | metrics(corpus__reward=1, corpus__em=0.2, corpus__turns=3)
    keys = shown_keys([both])
    assert "corpus/em" in keys and "corpus/reward" in keys and "corpus/turns" not in keys


def test_numbers_keep_the_digits_that_mean_something() -> None:
    assert format_value("em", 0.95349) == "0.953" and format_value("kl", 0.00012) == "1.2e-04"
    assert format_value("tokens_per_s", 12345.6) == "12,346"
    assert format_metric("em", {"em": proportion(0, 4)}) == "0.000 [0.000, 0.490]"
    assert format_metric("em", {"em": proportion(0, 4)}, is_bare=True) == "0.000"
    assert format_metric("lr", metrics(lr=0.5)) == "0.500"
    old = {"lr": {"value": 0.5, "low": 0.5, "high": 0.5, "n": 1}}
    assert format_metric("lr", old) == "0.500"  # type: ignore[arg-type]
    assert (format_seconds(75), format_seconds(3700)) == ("1:15", "1:01:40")


def test_sparkline_keeps_zero_and_one_on_the_scale() -> None:
    assert sparkline([], 5) == "" and sparkline([1.0, 1.0, 1.0], 5) == "███"
    assert sparkline([0.0, 0.0], 5) == "▁▁"
    assert sparkline([0.50, 0.51, 0.49], 3) in ("▄▅▄", "▅▅▄", "▄▅▅")
    assert len(sparkline([i / 1000 for i in range(1000)], 18)) == 18
    assert sparkline([0.0, 0.01], 2) == "▁█"


def test_pair_shows_one_task_that_was_wrong_and_is_right(episodes: dict[str, tuple[Rollout, ...]]):
    pair = choose_pair(episodes["passive"], episodes["expert"])
    assert pair is not None and pair[0] is not None
    before, after = pair
    assert before.episode.task.id == after.episode.task.id
    assert before.scored.scores["em"] == 0 and after.scored.scores["em"] == 1
    assert choose_pair((), ()) is None and choose_pair((), episodes["expert"]) is not None


def test_episode_is_coloured_on_a_terminal_only(episodes: dict[str, tuple[Rollout, ...]]) -> None:
    rollout = episodes["expert"][0]
    console = terminal()
    console.print(render_rollout("after", rollout))
    assert "\x1b[" in text(console)
    plain = make_console(io.StringIO())
    plain.print(render_rollout("after", rollout))
    shown = text(plain)
    assert "\x1b" not in shown
    for turn in rollout.episode.turns:
        assert turn.text.strip().splitlines()[-1] in shown
    assert rollout.episode.task.answers[0] in shown


def test_slices_are_named_beside_the_kind(episodes: dict[str, tuple[Rollout, ...]]) -> None:
    rollout = episodes["expert"][0]
    task = replace(rollout.episode.task, kind="lookup", slices=("old", "long"))
    shown, named = make_console(io.StringIO()), replace(rollout.episode, task=task)
    shown.print(render_rollout("after", replace(rollout, episode=named)))
    assert f"{task.id} (lookup, old, long)" in text(shown)


def test_colouring_loses_no_text() -> None:
    for turn in ("<think>a</think>\n<search>q</search>", "<b>x [red]y[/red] </b", "", "<answer>"):
        assert colour_turn(turn).plain == turn


def test_live_table_shows_every_promised_figure() -> None:
    console = terminal()
    with ConsoleObserver(console) as observer:
        observer.evaluation("before", 0, {"reward": exact(1), "passive": proportion(3, 4)})
        observer.step(1, 3, STEP)
        observer.step(2, 3, {**STEP, "reward": exact(2.0)})
        observer.evaluation("during", 2, {"reward": exact(1.25), "passive": proportion(1, 4)})
        observer.phase("sample", 5, 16)
    shown = text(console)
    for part in (
        "reward", "my_reward", "passive rate", "KL to start", "clip fraction", "entropy",
        "dead groups", "tokens/s", "step 2/3", "ETA", "sample 5/16", "held out, before",
        "held out, step 2", "0.250 [0.046, 0.699]", "a loss of 0 is right here",
    ):  # fmt: skip
        assert part in shown, part


def test_what_was_not_measured_has_a_dash_or_no_row() -> None:
    """A KL of 0 was shown without a reference, and an old entropy after a dead step."""
    console = terminal()
    step = {key: metric for key, metric in STEP.items() if key != "kl"}
    with ConsoleObserver(console) as observer:
        observer.evaluation("before", 0, {"em": proportion(3, 64)})
        observer.step(1, 2, step)
        observer.step(2, 2, {key: metric for key, metric in step.items() if key != "entropy"})
    last = text(console).rpartition("step 2/2")[2].splitlines()
    shown = {line.split()[0]: line.split()[1:] for line in last if line.strip()}
    assert shown["entropy"][:2] == ["—", "—"] and shown["em"][0] == "0.047"
    assert "KL to start" not in text(console)


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ({"loss": 1e-9, "grad_norm": 0.3, "dead_groups": 0.5}, LOSS_HINT),
        ({"loss": 0.0, "grad_norm": 0.0, "dead_groups": 1.0}, DEAD_HINT),
        ({"dead_groups": 1.0}, DEAD_HINT),
        ({"loss": 0.0, "grad_norm": 0.0, "dead_groups": 0.5, "skipped_steps": 1.0}, ""),
        ({"loss": 0.5, "grad_norm": 0.3, "dead_groups": 0.5}, ""),
        ({"loss": 0.5, "grad_norm": 0.3, "dead_groups": 1.0}, ""),
    ],
)
def test_a_gradient_of_0_is_never_said_to_be_more(values: dict[str, float], hint: str) -> None:
    console = make_console(io.StringIO())
    with ConsoleObserver(console) as observer:
        for step in (1, 2):
            observer.step(step, 2, metrics(reward=1.0, **values))
    shown = " ".join(text(console).split())
    assert [one for one in (LOSS_HINT, DEAD_HINT) if one in shown] == ([hint] if hint else [])
    assert shown.count("gradient is") == bool(hint)  # a hint is given once


def test_live_table_fits_a_narrow_terminal() -> None:
    console = terminal(width=80)
    with ConsoleObserver(console) as observer:
        observer.evaluation("before", 0, {"em": proportion(3, 64)})
        for step in range(30):
            observer.step(step + 1, 30, {**STEP, "em": exact(step / 30)})
        observer.evaluation("after", 30, {"em": proportion(60, 64)})
    assert "0.047 [0.016, 0.129]" in text(console) and "0.938 [0.850, 0.975]" in text(console)


def test_live_display_ends_when_the_run_fails() -> None:
    console = terminal()
    with pytest.raises(RuntimeError), ConsoleObserver(console) as observer:
        observer.phase("sample", 0, 4)
        raise RuntimeError
    assert text(console).rstrip().endswith("\x1b[?25h")  # the cursor is back


def test_where_everything_is_can_be_pasted(tmp_path: Path) -> None:
    console, folder = make_console(io.StringIO()), tmp_path / "my run"
    figures = {"corpus/searched": exact(1)}
    ConsoleObserver(console).done(folder, {"env": ["corpus"], "after": figures})
    assert f"searchrl eval '{folder}' --retriever random" in text(console)


def test_a_run_without_searches_is_not_told_to_try_another_retriever(tmp_path: Path) -> None:
    console = make_console(io.StringIO())
    figures = {"tool_calls": exact(1)}
    ConsoleObserver(console).done(tmp_path, {"env": ["gsm_tools"], "after": figures})
    assert f"searchrl eval {tmp_path}" in text(console)
    assert "--retriever" not in text(console) and "searchrl ask" not in text(console)
