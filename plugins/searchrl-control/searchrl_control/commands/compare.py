"""`searchrl control sequences`, `compare` and `eval`: baselines, and agents against them.

Owns the output, and the flags that the commands share; `comparison.study` compares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

FOLDER = click.Path(path_type=Path)

_FILE = click.Path(dir_okay=False, path_type=Path)

config_flag = click.option(
    "--config", type=_FILE, metavar="FILE", help="Settings of a training as YAML."
)
collections_flag = click.option(
    "--collection", "names", multiple=True, metavar="NAME",
    help="A folder, or a name as env.collection takes it; repeat it for several.",
)  # fmt: skip
set_flag = click.option(
    "--set", "assignments", multiple=True, metavar="K=V",
    help="env.K=V is a setting of the environment, for all collections; lr=0.02 of a training.",
)  # fmt: skip
_out_flag = click.option("--out", type=_FILE, metavar="FILE", help="Write all figures as JSON.")

say = partial(click.echo, err=True)
"""Tells of long work."""


def _write(path: Path | None, figures: Any) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        click.echo(f"\nfigures: {path}")


@click.command("sequences")
@config_flag
@collections_flag
@set_flag
@_out_flag
def sequences(
    config: Path | None, names: tuple[str, ...], assignments: tuple[str, ...], out: Path | None
) -> None:
    """Play every fixed sequence of actions on the training questions of collections.

    Prints the best sequence of each collection and of all their questions pooled, as a setting for
    a network that begins with it, and what an oracle over several would win.

    \b
    Examples:
      searchrl control sequences --config run.yaml --out sequences.json
    """
    from searchrl_control.collections.judged import TRAIN
    from searchrl_control.comparison.sequences import (
        compared_envs,
        describe,
        measure_oracle,
        open_envs,
        play_all,
    )
    from searchrl_control.training.folder import read_training

    envs = open_envs(compared_envs(read_training(config, names, assignments)))
    training = play_all(envs, say)
    figures = describe(training)
    _show_best(figures)
    figures["oracle"] = measure_oracle(envs, TRAIN, training)
    _show_oracle(figures["oracle"], "training")
    _write(out, figures)


def _show_best(figures: Mapping[str, Any]) -> None:
    """The best sequences of training questions, as settings for networks that begin with them."""
    click.echo(f"\nbest of {figures['sequences']:,} fixed sequences on training questions")
    for name, best in _parts(figures["best"]).items():
        click.echo(
            f"  {name}: {best['ndcg']:.4f}  {best['sequence']}  (single pass "
            f"{best['single_pass']:.4f})\n    --set 'network.start={best['start']}'"
        )


def _show_oracle(oracle: Mapping[str, Any], split: str) -> None:
    """The gain of choosing the best list of every question, and its share of luck."""
    if not oracle:
        return
    click.echo(
        f"\noracle over {len(oracle['kinds'])} sequences of different kinds, {split} questions "
        "(the control chooses among as many noisy copies of the best one)"
    )
    for name, margin in _parts(oracle["margins"]).items():
        click.echo(
            f"  {name}: best {margin['best']:.4f}, oracle {margin['oracle']:.4f}, control "
            f"{margin['control']:.4f}: learnable {margin['learnable']:+.4f}"
        )


def _parts(figures: Mapping[str, Any], collections: int = 0) -> dict[str, Any]:
    """A figure of each collection, and of the pool where there are several."""
    is_one = (collections or len(figures) - 1) == 1
    return {name: part for name, part in figures.items() if name != "pooled" or not is_one}


@click.command("compare")
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=FOLDER)
@set_flag
@_out_flag
def compare(paths: tuple[Path, ...], assignments: tuple[str, ...], out: Path | None) -> None:
    """Compare trained networks with every fixed sequence, on the test questions of their runs.

    RUN is a run of `searchrl control train`; several are seeds of one training. The checkpoint of
    a run and the best sequences are chosen on training questions. `--set env.data=FOLDER` says
    where the collections lie on this machine.

    \b
    Examples:
      searchrl control compare runs/seed1
      searchrl control compare runs/seed1 runs/seed2 runs/seed3 --out figures.json
    """
    _compare(paths, (), assignments, out)


@click.command("eval")
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=FOLDER)
@click.option(
    "--collection", "names", multiple=True, required=True, metavar="FOLDER",
    help="What to play, which the runs need not have seen; repeat it for several.",
)  # fmt: skip
@set_flag
@_out_flag
def evaluate(
    paths: tuple[Path, ...], names: tuple[str, ...], assignments: tuple[str, ...], out: Path | None
) -> None:
    """Compare trained networks with fixed sequences on another collection than their own.

    As `compare`, on the test questions of FOLDER. Checkpoint and best fixed sequence are chosen on
    the training questions of the runs; only `best of each collection` reads those of FOLDER.

    \b
    Example:
      searchrl control eval runs/seed1 runs/seed2 runs/seed3 --collection data/mine
    """
    _compare(paths, names, assignments, out)


def _compare(
    paths: Sequence[Path], names: Sequence[str], assignments: Sequence[str], out: Path | None
) -> None:
    from searchrl_control.comparison.sequences import open_envs
    from searchrl_control.comparison.study import compare_runs, other_places, read_runs
    from searchrl_control.training.folder import read_assignments

    changes, _ = read_assignments(assignments)
    runs, places = read_runs(paths, changes)
    others = open_envs(other_places(places, names)) if names else None
    figures = compare_runs(open_envs(places), runs, say, others)
    _show_comparison(figures)
    _write(out, figures)


def _show_comparison(figures: Mapping[str, Any]) -> None:
    """Tables, differences, and warnings about the networks."""
    for name, one in figures["collections"].items():
        click.echo(f"{name}: {one['train']:,} training, {one['test']:,} test questions")
        for note in one["notes"]:
            click.echo(f"  note: {note}")
    _show_best(figures)
    for name, rows in _parts(figures["tables"]).items():
        click.echo(f"\n{name}, test questions\n\n{render(rows)}")
    _show_oracle(figures["oracle"], "test")
    agent, baselines = [*figures["against"].items()][-1]
    of = "questions and seeds" if len(figures["runs"]) > 1 else "questions"
    click.echo(f"\nnDCG@10 of {agent} minus that of …, paired, 95 % over {of}")
    for other, against in baselines.items():
        for name, difference in _parts(against, len(figures["collections"])).items():
            click.echo(f"  {other}, {name}: {show_difference(difference)}  n {difference['n']}")
    if baselines["best fixed sequence"]["pooled"].get("low", 0) <= 0:
        click.echo("\nNo gain over the best fixed sequence is shown.")
    for run in figures["runs"]:
        count = len(run["sweep"])
        click.echo(f"\n{run['path']}: {count} checkpoints, step {run['checkpoint']} chosen")
        for fault in run["faults"]:
            click.echo(f"  warning: {fault}")


def show_difference(difference: Mapping[str, Any]) -> str:
    """A paired difference with its interval, where it has one."""
    if not difference["value"] and "low" not in difference:
        return "the same on all questions"
    ends = f" [{difference['low']:+.4f}, {difference['high']:+.4f}]" if "low" in difference else ""
    return f"{difference['value']:+.4f}{ends}"


def render(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of a collection in Markdown, a line for each policy."""
    names = ("easy", "medium", "hard")
    heads = ("policy", "nDCG@10", "95 %", "steps", *names, "actions")
    lines: list[Sequence[str]] = [heads, ["---"] * len(heads)]
    for policy, row in rows.items():
        ndcg, levels = row["ndcg"], [row["levels"].get(name) for name in names]
        interval = f"{ndcg['low']:.4f} to {ndcg['high']:.4f}" if "low" in ndcg else ""
        of_levels = [f"{one['ndcg']:.4f} ({one['n']})" if one else "" for one in levels]
        shares = ", ".join(f"{name} {share:.0%}" for name, share in row["actions"].items())
        figures = (f"{ndcg['value']:.4f}", interval, f"{row['steps']:.2f}", *of_levels, shares)
        lines.append((policy, *figures))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
