"""`searchrl score`: the rollouts of a run under another reward. No model, no torch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option
from searchrl.errors import ConfigError
from searchrl.screen.lines import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

_REASONS = 3


@click.command(cls=Command)
@click.argument("run")
@options.REWARD
@option("--against EXPR", "Another reward; by default the one that the run recorded.")
@option("--phase NAME", "Only rollouts of one phase: train, before, after, eval, ….")
@option("--step N", "Only rollouts of one step.", type=click.IntRange(min=0))
@options.LOADED
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
    from searchrl.run_folder import Run
    from searchrl.runs.rescoring import compare_phases, read_recorded, score_again
    from searchrl.screen.figures import make_table
    from searchrl.screen.terminal import make_console

    if values["reward"] is None:
        raise ConfigError("nothing to score with: name a reward, such as --reward 0.2*format+em")
    opened = Run.open(run)
    config, registry = load_run(opened)
    rows = (
        row
        for row in opened.rollouts(values["phase"])
        if values["step"] is None or row.get("step") == values["step"]
    )
    recorded = read_recorded(rows, config, registry)
    if not recorded:
        known = ", ".join(sorted({f"{row.get('phase')}" for row in opened.rollouts()}))
        phases = f"its phases: {known}" if known else "it was made with log.rollouts off"
        raise ConfigError(f"'{opened.path}' has no such rollouts; {phases}")
    first = score_again(recorded, config, registry, values["reward"])
    second_name, second = "recorded", recorded
    if values["against"] is not None:
        second_name = values["against"]
        second = score_again(recorded, config, registry, second_name)
    compared = compare_phases(first, second)
    names = (values["reward"], second_name)
    if values["json"]:
        head = {"run": str(opened.path), "first": names[0], "second": names[1]}
        print_json({**head, "phases": compared})
        return
    console = make_console(sys.stdout)
    console.print(f"{len(first)} rollouts of {opened.path}: {names[0]} against {names[1]}")
    shown = {phase: _cells(one, *names) for phase, one in compared.items()}
    table = {key: [cells[key] for cells in shown.values()] for key in next(iter(shown.values()))}
    console.print(make_table("phase", shown, table))
    reasons = {one.unscored for side in (first, second) for one in side if one.unscored}
    for reason in sorted(reasons)[:_REASONS]:
        console.print(f"unscored: {reason}", style="yellow")


def _cells(one: Mapping[str, Any], first: str, second: str) -> dict[str, str]:
    def number(value: float | None) -> str:
        return "—" if value is None else f"{value:.3f}"

    unscored = (
        f" ({' / '.join(map(str, one['unscored']))} unscored)" if any(one["unscored"]) else ""
    )
    return {
        "rollouts": f"{one['n']}{unscored}",
        first: number(one["first"] and one["first"]["value"]),
        second: number(one["second"] and one["second"]["value"]),
        "tau": number(one["kendall_tau"]),
        "rho": number(one["spearman_rho"]),
        "in groups": f"{number(one['group_tau'])} ({one['groups']})" if one["groups"] else "—",
    }
