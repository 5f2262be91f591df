"""`searchrl control compare`: networks of runs against everything that decides nothing.

Owns the flags and what is printed; the order of the comparison is in `comparison.study`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl_control.commands.sequences import show_oracle
from searchrl_control.commands.surroundings import (
    FOLDER,
    ensure_writable,
    out_flag,
    plugin_flag,
    read_settings,
    say,
    set_flag,
    write_out,
)

if TYPE_CHECKING:
    from searchrl_control.comparison.study import Swept


@click.command("compare")
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=FOLDER)
@set_flag
@click.option(
    "--collection",
    "names",
    metavar="NAME",
    multiple=True,
    help="Compare on this collection of the runs alone; may be repeated.",
)
@click.option("--sweep", "has_sweep", is_flag=True, help="Print a table of all checkpoints.")
@out_flag
@plugin_flag
def compare(
    paths: tuple[Path, ...],
    assignments: tuple[str, ...],
    names: tuple[str, ...],
    has_sweep: bool,
    out: Path | None,
    plugins: tuple[str, ...],
) -> None:
    """Compare trained networks with every fixed sequence, on the test questions of their runs.

    RUN is a run of `searchrl control train`; several are seeds of one training. The
    checkpoint of a run and the best sequences are chosen on training questions. `--set
    env.data=FOLDER` says where the collections lie on this machine.

    \b
    Examples:
      searchrl control compare runs/seed1 --sweep
      searchrl control compare runs/seed1 runs/seed2 runs/seed3 --out figures.json
    """
    from searchrl_retrieval.commands.surroundings import load_registry

    from searchrl_control.collections.judged import TEST, TRAIN
    from searchrl_control.comparison.fixed import FixedSequences
    from searchrl_control.comparison.opening import choose_envs, open_envs
    from searchrl_control.comparison.runs import ensure_alike, read_run
    from searchrl_control.comparison.study import AGENT, Boards, Study, choose_checkpoint, join
    from searchrl_control.comparison.table import render

    ensure_writable(out)
    registry = load_registry(plugins)
    changes = read_settings(assignments)
    runs = [read_run(path, changes) for path in dict.fromkeys(paths)]
    ensure_alike(runs)
    envs = choose_envs(open_envs(runs[0].settings, registry), names)
    training = Boards(envs, TRAIN)
    swept = []
    for run in runs:
        say(f"{run.path}: {len(run.weights)} checkpoints on the training questions …")
        swept.append(training.sweep(run, say))
    chosen = [choose_checkpoint(one) for one in swept]
    study = Study(FixedSequences(envs, say=say))
    boards = Boards(envs, TEST)
    agents = {}
    for run, best in zip(runs, chosen, strict=True):
        name = AGENT if len(runs) == 1 else f"{AGENT} {run.name}"
        agents[f"{name} ({best.weights.name})"] = join(boards.play(run, best.weights))
    everybody = dict(agents)
    if len(runs) > 1:
        # The mean of the runs on every question: row_of and against take repeated questions so.
        everybody[f"{AGENT}, mean of {len(runs)} runs"] = tuple(
            one for played in agents.values() for one in played
        )
    told: dict[str, Any] = study.describe()
    told["tables"] = study.rows(everybody)
    told["against"] = {name: study.against(played) for name, played in everybody.items()}
    told["runs"] = [
        {
            "path": str(run.path),
            "seed": run.seed,
            "network": dict(run.network),
            "checkpoint": best.weights.name,
            "sweep": [one.to_dict() for one in of_run],
        }
        for run, best, of_run in zip(runs, chosen, swept, strict=True)
    ]
    _show_collections(told)
    questions = list(told["questions"])
    for name, rows in told["tables"].items():
        name = questions[0] if len(questions) == 1 else name
        click.echo(f"\n{name}, test questions\n\n{render(rows)}")
    _show_highest(told, list(everybody))
    show_oracle(told["oracle"], "test")
    _show_against(told["against"])
    for run, best, of_run in zip(runs, chosen, swept, strict=True):
        _show_sweep(f"{run.path}", of_run, best, has_table=has_sweep)
    write_out(out, told)


def _show_collections(told: Mapping[str, Any]) -> None:
    for name, count in told["questions"].items():
        drawn = ", split drawn by env.split_seed" if told["drawn_split"][name] else ""
        click.echo(f"{name}: {count['train']:,} training, {count['test']:,} test questions{drawn}")
        for note in told["notes"][name]:
            click.echo(f"  note: {note}")
    click.echo(f"\nbest of {told['sequences']:,} fixed sequences on training questions")
    for name, best in told["best"].items():
        if name != "pooled" or len(told["questions"]) > 1:
            click.echo(f"  {name}: {best['ndcg']:.4f}  {best['sequence']}")


def _show_highest(told: Mapping[str, Any], agents: Sequence[str]) -> None:
    """Where the agents stand among all sequences on test questions."""
    on_test, rows = told["on_test"], told["tables"]["pooled"]
    highest = on_test["highest"]
    click.echo(
        f"\nall {told['sequences']:,} fixed sequences on the test questions: the highest, known "
        f"only afterwards, is {highest['ndcg']:.4f} ({highest['sequence']}); the best one of every "
        f"question has {on_test['oracle_over_all']:.4f}"
    )
    for name in agents:
        value = rows[name]["ndcg"]["value"]
        below = sum(one < value for one in on_test["ndcg"].values())
        click.echo(f"  {name}: above {below:,} of {told['sequences']:,}")


def _show_against(told: Mapping[str, Any]) -> None:
    click.echo("\nnDCG@10 of the agent minus that of …, paired, 95 %")
    for agent, others in told.items():
        click.echo(agent)
        for other, against in others.items():
            pooled = {"pooled": against["pooled"]} if len(against["each"]) > 1 else {}
            for name, found in {**pooled, **against["each"]}.items():
                ends = f" [{found['low']:+.4f}, {found['high']:+.4f}]" if "low" in found else ""
                click.echo(
                    f"  {other}, {name}: {found['value']:+.4f}{ends}  p {found['p']:.3f}  "
                    f"n {found['n']}"
                )


def _show_sweep(run: str, swept: Sequence[Swept], best: Swept, *, has_table: bool) -> None:
    """The checkpoints of a run on training questions, and whether one has collapsed."""
    if has_table:
        click.echo(f"\n{run}: checkpoints on training questions\n")
        click.echo("| checkpoint | nDCG@10 | steps | least probability | Terminate | decisions |")
        click.echo("| --- | --- | --- | --- | --- | --- |")
        for one in swept:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in one.choices.items())
            mark = " (chosen)" if one is best else ""
            click.echo(
                f"| {one.weights.name}{mark} | {one.ndcg:.4f} | {one.row['steps']:.2f} | "
                f"{one.least:.1e} | {one.terminate:.1%} | {shares} |"
            )
    fallen = [one for one in swept if one.has_collapsed]
    least = min(one.least for one in swept)
    most = max(one.terminate for one in swept)
    click.echo(
        f"\n{run}: {len(swept)} checkpoints, {best.weights.name} chosen; the least probability of "
        f"a legal action is {least:.1e}, the largest share of Terminate among decisions {most:.1%}"
    )
    for one in fallen:
        click.echo(
            f"  collapsed: {one.weights.name} ends in {one.terminate:.0%} of its decisions, and "
            f"its least probability is {one.least:.1e}"
        )
