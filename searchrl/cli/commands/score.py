"""`searchrl score`: the rollouts of a run under another reward, without playing them again.

Owns what is printed. The scoring and the comparison are `results.rescoring`. No model, no torch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl.cli.json_output import print_json
from searchrl.cli.options import (
    JSON,
    PLUGIN,
    REWARD,
    STRICT,
    TRUST,
    Flag,
    GroupedCommand,
    options,
)
from searchrl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from searchrl.results.rescoring import Comparison, Disagreement, Scored

_SHOWN = 3
_CHARACTERS = 200
"""Of a question or an answer that is shown."""

_LEGEND = """tau, rho   1: both rewards order all episodes alike; —: one of them is constant
in groups  mean tau within the groups in which neither is constant (how many)
best       groups whose best episode is another one"""


SCORE = (
    REWARD,
    Flag("--against", "", "Another reward; by default the one that the run recorded.", str, "EXPR"),
    Flag("--phase", "", "Only rollouts of one phase: train, before, after, eval, ….", str, "NAME"),
    Flag("--step", "", "Only rollouts of one step.", click.IntRange(min=0), "N"),
    Flag("--show", "", "How many disagreements to show; 3 by default.", click.IntRange(min=0), "N"),
    PLUGIN,
    TRUST,
    STRICT,
    JSON,
)
"""Its flags."""


@click.command(cls=GroupedCommand)
@click.argument("run")
@options(SCORE)
def score(run: str, **values: Any) -> None:
    """Score the rollouts of a run again and compare two rewards; needs no model.

    With --reward alone, the expression is compared with the rewards that the run recorded; with
    --against, two expressions are compared with each other. Nothing is played or written.

    \b
    Examples:
      searchrl score runs/mine --reward 0.2*format+em
      searchrl score runs/mine --reward em --against f1 --phase after
    """
    from searchrl.cli.loading import load_run
    from searchrl.cli.terminal import make_console
    from searchrl.results.rescoring import compare_phases, read_recorded, score_again
    from searchrl.run_folder import Run

    if values["reward"] is None:
        raise ConfigError("nothing to score with: name a reward, such as --reward 0.2*format+em")
    opened = Run.open(run)
    config, registry = load_run(opened, values["plugin"] or (), is_strict=bool(values["strict"]))
    rows = (
        row
        for row in opened.rollouts(values["phase"])
        if values["step"] is None or row.get("step") == values["step"]
    )
    recorded = read_recorded(rows, config, registry)
    if not recorded:
        raise ConfigError(_nothing(opened, values))
    first = score_again(recorded, config, registry, values["reward"])
    second_name, second = "recorded", recorded
    if values["against"] is not None:
        second_name = values["against"]
        second = score_again(recorded, config, registry, second_name)
    num_shown = _SHOWN if values["show"] is None else values["show"]
    compared = compare_phases(first, second, num_shown)
    names = (values["reward"], second_name)
    if values["json"]:
        print_json(_as_json(opened.path, names, compared))
        return
    console = make_console(sys.stdout)
    console.print(f"{len(first)} rollouts of {opened.path}: {names[0]} against {names[1]}")
    _show(console, compared)
    for disagreement in (found for one in compared.values() for found in one.disagreements):
        _show_disagreement(console, names, disagreement)
    reasons = {one.unscored for side in (first, second) for one in side if one.unscored}
    for reason in sorted(reasons)[:_SHOWN]:
        console.print(f"unscored: {reason}", style="yellow")


def _nothing(run: Any, values: Mapping[str, Any]) -> str:
    """Why there is nothing to score."""
    found = sorted({f"{row.get('phase')}" for row in run.rollouts()})
    if not found:
        return f"'{run.path}' holds no rollouts: it was made with log.rollouts off"
    asked = [f"--{name} {values[name]}" for name in ("phase", "step") if values[name] is not None]
    return f"no rollouts of '{run.path}' for {' '.join(asked)}; its phases: {', '.join(found)}"


def _show(console: Console, compared: Mapping[str, Comparison]) -> None:
    from rich.table import Table

    heads = ("phase", "n", "first", "second", "tau", "rho", "in groups", "best")
    table = Table(*heads, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for phase, one in compared.items():
        unscored = f" ({' / '.join(map(str, one.unscored))} unscored)" if any(one.unscored) else ""
        table.add_row(
            phase,
            f"{one.n}{unscored}",
            _mean(one.first),
            _mean(one.second),
            _number(one.tau),
            _number(one.rho),
            f"{_number(one.group_tau)} ({one.num_groups})" if one.num_groups else "—",
            str(one.num_flipped),
        )
    console.print(table)
    console.print(_LEGEND, style="dim")


def _show_disagreement(console: Console, names: Sequence[str], found: Disagreement) -> None:
    from rich.text import Text

    episode = found.first.episode
    answer = "no answer" if episode.final_answer is None else episode.final_answer
    text = Text("\n")
    text.append(f"{found.first.name}\n", "bold")
    for name, value in (
        ("question", episode.task.question),
        ("answer", answer),
        ("expected", " | ".join(episode.task.answers)),
    ):
        text.append(f"  {name:<10}{_short(value)}\n")
    for name, one, rank in zip(names, (found.first, found.second), found.ranks, strict=True):
        scores = "  ".join(f"{key} {value:g}" for key, value in one.scores.items())
        text.append(f"  {name} = {one.reward:g}, above {100 * rank:.0f} %   ")
        text.append(f"{scores}\n", "dim")
    console.print(text, end="")


def _as_json(
    path: Path, names: tuple[str, str], compared: Mapping[str, Comparison]
) -> dict[str, Any]:
    return {
        "run": str(path),
        "first": names[0],
        "second": names[1],
        "phases": {
            phase: {
                "n": one.n,
                "unscored": list(one.unscored),
                "first": one.first,
                "second": one.second,
                "kendall_tau": one.tau,
                "spearman_rho": one.rho,
                "group_tau": one.group_tau,
                "groups": one.num_groups,
                "best_differs": one.num_flipped,
                "disagreements": [
                    {
                        "rollout": found.first.name,
                        "question": found.first.episode.task.question,
                        "answer": found.first.episode.final_answer,
                        "expected": list(found.first.episode.task.answers),
                        "first": _side(found.first, found.ranks[0]),
                        "second": _side(found.second, found.ranks[1]),
                    }
                    for found in one.disagreements
                ],
            }
            for phase, one in compared.items()
        },
    }


def _side(one: Scored, rank: float) -> dict[str, Any]:
    return {"reward": one.reward, "rank": rank, "scores": dict(one.scores)}


def _mean(metric: Mapping[str, Any] | None) -> str:
    return "—" if metric is None else f"{metric['value']:.3f}"


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.3f}"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _CHARACTERS else f"{plain[:_CHARACTERS]} …"
