"""`searchrl control sequences` and `compare`: what an agent has to beat, and whether it does.

Owns what is printed, and the flags that the commands share; the order of the comparison is in
`comparison.study`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl import ConfigError

if TYPE_CHECKING:
    from searchrl_control.training.loop import Settings

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


def read_assignments(
    assignments: Sequence[str], *, is_training: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the environment in `env.K=V`, and the others, which only a training has.

    Raises `ConfigError`: an assignment cannot be read, or is none of the environment.
    """
    from searchrl import parse_sets

    said = parse_sets(assignments)
    of_env = said.pop("env", {})
    if not isinstance(of_env, dict) or (said and not is_training):
        raise ConfigError(
            f"--set {next(iter(said), 'env')}…: expected a setting of the environment, such as "
            "--set env.actions=heads"
        )
    return of_env, said


def read_training(
    config: Path | None, names: Sequence[str], assignments: Sequence[str]
) -> Settings:
    """The settings of a training: those of a file, then collections by name, then assignments."""
    from searchrl import load_yaml
    from searchrl_control.comparison.runs import change_envs
    from searchrl_control.training.folder import build_settings

    changes, own = read_assignments(assignments, is_training=True)
    file = load_yaml(config) if config is not None else {}
    named = {"envs": [{"collection": name} for name in dict.fromkeys(names)]} if names else {}
    return change_envs(build_settings(file, named, own), changes, f"'{config}'")


def say(text: str) -> None:
    """Say on standard error what takes a while."""
    click.echo(text, err=True)


def _write(path: Path | None, figures: Any) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        click.echo(f"\nfigures: {path}")


_SHOWN = 5
"""Sequences that are printed of the pool."""


@click.command("sequences")
@config_flag
@collections_flag
@set_flag
@click.option("--oracle", "has_oracle", is_flag=True, help="Also what an oracle would win.")
@_out_flag
def sequences(
    config: Path | None,
    names: tuple[str, ...],
    assignments: tuple[str, ...],
    has_oracle: bool,
    out: Path | None,
) -> None:
    """Play every fixed sequence of actions on the training questions of collections.

    Prints the best sequence of each collection and of all their questions pooled, as a setting for
    a network that begins with it.

    \b
    Examples:
      searchrl control sequences --collection data/scifact --set env.actions=heads
      searchrl control sequences --config run.yaml --out sequences.json
    """
    from searchrl_control.collections.judged import TRAIN
    from searchrl_control.comparison.runs import compared_envs, open_envs
    from searchrl_control.comparison.sequences import describe, measure_oracle, play_all

    envs = open_envs(compared_envs(read_training(config, names, assignments)))
    training = play_all(envs, TRAIN, say)
    told = describe(training)
    _show_best(told)
    means = told["ndcg"]["pooled"]
    click.echo(f"the first of {len(means):,}:")
    for name in sorted(means, key=lambda one: -means[one])[:_SHOWN]:
        click.echo(f"  {means[name]:.4f}  {name}")
    if has_oracle:
        told["oracle"] = measure_oracle(envs, TRAIN, training, training)
        _show_oracle(told["oracle"], "training")
    _write(out, told)


def _show_best(told: Mapping[str, Any]) -> None:
    """The best sequences of training questions, as settings for networks that begin with them."""
    click.echo(f"\nbest of {told['sequences']:,} fixed sequences on training questions")
    for name, best in _parts(told["best"]).items():
        click.echo(
            f"  {name}: {best['ndcg']:.4f}  {best['sequence']}  (single pass "
            f"{best['single_pass']:.4f})\n    --set 'network.start={best['start']}'"
        )


def _show_oracle(told: Mapping[str, Any], split: str) -> None:
    """Say what choosing the best list of every question would win, and how much of that is luck."""
    if not told:
        return
    click.echo(
        f"\noracle over {len(told['kinds'])} sequences of different kinds, {split} questions "
        "(the control chooses among as many noisy copies of the best one)"
    )
    for name, margin in _parts(told["margins"]).items():
        click.echo(
            f"  {name}: best {margin['best']:.4f}, oracle {margin['oracle']:.4f}, control "
            f"{margin['control']:.4f}: learnable {margin['learnable']:+.4f}"
        )


def _parts(told: Mapping[str, Any]) -> dict[str, Any]:
    """A figure of each collection, and of the pool where there are several."""
    return {name: said for name, said in told.items() if name != "pooled" or len(told) > 2}


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _shares(told: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in told.items())


@click.command("compare")
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=FOLDER)
@collections_flag
@set_flag
@click.option("--sweep", "has_sweep", is_flag=True, help="Print a table of all checkpoints.")
@_out_flag
def compare(
    paths: tuple[Path, ...],
    names: tuple[str, ...],
    assignments: tuple[str, ...],
    has_sweep: bool,
    out: Path | None,
) -> None:
    """Compare trained networks with every fixed sequence, on the test questions of their runs.

    RUN is a run of `searchrl control train`; several are seeds of one training. The
    checkpoint of a run and the best sequences are chosen on training questions. `--collection NAME`
    compares on this one of the runs alone. `--set env.data=FOLDER` says where the collections lie
    on this machine.

    \b
    Examples:
      searchrl control compare runs/seed1 --sweep
      searchrl control compare runs/seed1 runs/seed2 runs/seed3 --out figures.json
    """
    from searchrl_control.comparison.runs import open_envs, read_runs
    from searchrl_control.comparison.study import compare_runs

    changes, _ = read_assignments(assignments)
    runs, envs = read_runs(paths, changes)
    told = compare_runs(open_envs(envs, names), runs, say)
    for name, count in told["questions"].items():
        click.echo(f"{name}: {count['train']:,} training, {count['test']:,} test questions")
        for note in told["notes"][name]:
            click.echo(f"  note: {note}")
    _show_best(told)
    for name, rows in _parts(told["tables"]).items():
        click.echo(f"\n{name}, test questions\n\n{render(rows)}")
    highest, values = told["on_test"]["highest"], told["on_test"]["ndcg"].values()
    click.echo(
        f"\nall {told['sequences']:,} fixed sequences on the test questions: the highest, known "
        f"only afterwards, is {highest['ndcg']:.4f} ({highest['sequence']})"
    )
    for name in told["against"]:
        own = told["tables"]["pooled"][name]["ndcg"]["value"]
        click.echo(f"  {name}: above {sum(one < own for one in values):,} of {len(values):,}")
    _show_oracle(told["oracle"], "test")
    click.echo("\nnDCG@10 of the agent minus that of …, paired, 95 %")
    for agent, others in told["against"].items():
        click.echo(agent)
        for other, against in others.items():
            for name, found in _parts(against).items():
                ends = f" [{found['low']:+.4f}, {found['high']:+.4f}]" if "low" in found else ""
                click.echo(
                    f"  {other}, {name}: {found['value']:+.4f}{ends}  p {found['p']:.3f}  "
                    f"n {found['n']}"
                )
    for run in told["runs"]:
        _show_sweep(run, has_table=has_sweep)
    _write(out, told)


def render(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of a collection in Markdown, a line for each policy."""
    names = ("easy", "medium", "hard")
    lines = []
    for policy, row in rows.items():
        ndcg, levels = row["ndcg"], [row["levels"].get(name) for name in names]
        interval = f"{ndcg['low']:.4f} to {ndcg['high']:.4f}" if "low" in ndcg else ""
        of_levels = [f"{one['ndcg']:.4f} ({one['n']})" if one else "" for one in levels]
        figures = (f"{ndcg['value']:.4f}", interval, f"{row['steps']:.2f}", *of_levels)
        lines.append((policy, *figures, _shares(row["actions"])))
    return _table(("policy", "nDCG@10", "95 %", "steps", *names, "actions"), lines)


def _show_sweep(run: Mapping[str, Any], *, has_table: bool) -> None:
    """The checkpoints of a run on training questions, and whether one has collapsed."""
    rows, chosen = run["sweep"], run["checkpoint"]
    least = min(one["least_probability"] for one in rows)
    most = max(one["terminate"] for one in rows)
    click.echo(
        f"\n{run['path']}: {len(rows)} checkpoints, step {chosen} chosen; the least probability of "
        f"a legal action is {least:.1e}, the largest share of Terminate among decisions {most:.1%}"
    )
    for one in rows:
        if one["has_collapsed"]:
            click.echo(
                f"  collapsed: step {one['step']} ends in {one['terminate']:.0%} of its "
                f"decisions, and its least probability is {one['least_probability']:.1e}"
            )
    if has_table:
        heads = ("step", "nDCG@10", "steps", "least probability", "Terminate", "decisions")
        lines = [
            (
                str(one["step"]) + " (chosen)" * (one["step"] == chosen),
                f"{one['train']['ndcg']['value']:.4f}",
                f"{one['train']['steps']:.2f}",
                f"{one['least_probability']:.1e}",
                f"{one['terminate']:.1%}",
                _shares(one["choices"]),
            )
            for one in rows
        ]
        click.echo(f"\ncheckpoints on training questions\n\n{_table(heads, lines)}")
