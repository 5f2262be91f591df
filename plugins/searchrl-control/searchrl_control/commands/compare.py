"""`searchrl control sequences` and `compare`: what an agent has to beat, and whether it does.

Owns what is printed, and the flags, also those that `train` and `questions` share; the order of the
comparison is in `comparison.study`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from searchrl import ConfigError

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(path_type=Path)

set_flag = click.option(
    "--set", "assignments", multiple=True, metavar="env.K=V",
    help="A setting of the environment for all collections; may be repeated.",
)  # fmt: skip
collection_flag = click.option(
    "--collection", "names", multiple=True, metavar="NAME",
    help="A folder, or a name as env.collection takes it; repeat it for several.",
)  # fmt: skip
out_flag = click.option("--out", type=FILE, metavar="FILE", help="Write all figures as JSON.")


def read_assignments(assignments: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the environment in `env.K=V`, and the other assignments.

    Raises `ConfigError`: an assignment cannot be read.
    """
    from searchrl import parse_sets

    said = parse_sets(assignments)
    of_env = said.pop("env", {})
    if not isinstance(of_env, dict):
        raise ConfigError("--set env.KEY=VALUE sets the environment; env alone is none")
    return of_env, said


def read_settings(assignments: Sequence[str]) -> dict[str, Any]:
    """The settings in `env.K=V`; raises `ConfigError` if there is another assignment."""
    said, others = read_assignments(assignments)
    if others:
        raise ConfigError(
            f"--set {next(iter(others))}…: this command has settings of the environment alone, "
            "such as --set env.actions=heads"
        )
    return said


def ensure_writable(path: Path | None) -> None:
    """Raise `ConfigError` before anything is measured if `--out` cannot be written there."""
    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError(f"--out {path}: there is no folder '{path.parent}'")


def write_out(path: Path | None, value: Any) -> None:
    """Write figures as JSON, if a file was named."""
    if path is not None:
        path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        click.echo(f"\nfigures: {path}")


def say(text: str) -> None:
    """Say on standard error what takes a while."""
    click.echo(text, err=True)


_SHOWN = 5
"""Sequences that are printed of the pool."""


@click.command("sequences")
@collection_flag
@click.option(
    "--config", type=FILE, metavar="FILE",
    help="Take the collections and settings of a configuration.",
)  # fmt: skip
@set_flag
@click.option("--oracle", "has_oracle", is_flag=True, help="Also what an oracle would win.")
@out_flag
def sequences(
    names: tuple[str, ...],
    config: Path | None,
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
    from searchrl import ConfigError, load_yaml
    from searchrl_control.collections.judged import TRAIN
    from searchrl_control.comparison.runs import as_compared, open_envs
    from searchrl_control.comparison.sequences import describe, measure_oracle, play_all
    from searchrl_control.training.folder import build_settings

    ensure_writable(out)
    if bool(names) == bool(config):
        raise ConfigError("name collections with --collection, or a configuration with --config")
    changes = read_settings(assignments)
    settings: list[dict[str, Any]] = [{"collection": name} for name in dict.fromkeys(names)]
    if config is not None:
        settings = build_settings(load_yaml(config)).envs
    envs = open_envs(as_compared(settings, f"'{config}'", changes))
    training = play_all(envs, TRAIN, say)
    told = describe(training)
    counts = told["questions"]
    total, means = sum(counts.values()), told["ndcg"]["pooled"]
    for name, best in told["best"].items():
        if name != "pooled" or len(counts) > 1:
            click.echo(
                f"{name}: {counts.get(name, total):,} training questions\n"
                f"  best         {best['ndcg']:.4f}  {best['sequence']}\n"
                f"  single pass  {best['single_pass']:.4f}\n"
                f"  --set 'network.start={best['start']}'"
            )
    click.echo(f"\n{told['sequences']:,} sequences on {total:,} questions; the first:")
    for name in sorted(means, key=lambda one: -means[one])[:_SHOWN]:
        click.echo(f"  {means[name]:.4f}  {name}")
    if has_oracle:
        told["oracle"] = measure_oracle(envs, TRAIN, training, training)
        _show_oracle(told["oracle"], "training")
    write_out(out, told)


def _show_oracle(told: Mapping[str, Any], split: str) -> None:
    """Say what choosing the best list of every question would win, and how much of that is luck."""
    if not told:
        return
    click.echo(
        f"\noracle over {len(told['kinds'])} sequences of different kinds, {split} questions "
        "(the control chooses among as many noisy copies of the best one)"
    )
    for name, margin in _parts(told).items():
        click.echo(
            f"  {name}: best {margin['best']:.4f}, oracle {margin['oracle']:.4f}, control "
            f"{margin['control']:.4f}: learnable {margin['learnable']:+.4f}"
        )


def _parts(told: Mapping[str, Any]) -> dict[str, Any]:
    """A figure of each collection, and of the pool where there are several."""
    each: dict[str, Any] = told["each"]
    return {"pooled": told["pooled"], **each} if len(each) > 1 else each


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _shares(told: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in told.items())


@click.command("compare")
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=FOLDER)
@set_flag
@click.option(
    "--collection", "names", metavar="NAME", multiple=True,
    help="Compare on this collection of the runs alone; may be repeated.",
)  # fmt: skip
@click.option("--sweep", "has_sweep", is_flag=True, help="Print a table of all checkpoints.")
@out_flag
def compare(
    paths: tuple[Path, ...],
    assignments: tuple[str, ...],
    names: tuple[str, ...],
    has_sweep: bool,
    out: Path | None,
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
    from searchrl_control.comparison.runs import open_envs, read_runs
    from searchrl_control.comparison.study import compare_runs

    ensure_writable(out)
    runs, envs = read_runs(paths, read_settings(assignments))
    told = compare_runs(open_envs(envs, names), runs, say)
    _show_collections(told)
    for name, rows in told["tables"].items():
        label = name if len(told["questions"]) > 1 else next(iter(told["questions"]))
        click.echo(f"\n{label}, test questions\n\n{render(rows)}")
    _show_highest(told)
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


def _show_highest(told: Mapping[str, Any]) -> None:
    """Where the agents stand among all sequences on test questions."""
    highest, values = told["on_test"]["highest"], told["on_test"]["ndcg"].values()
    click.echo(
        f"\nall {told['sequences']:,} fixed sequences on the test questions: the highest, known "
        f"only afterwards, is {highest['ndcg']:.4f} ({highest['sequence']})"
    )
    for name in told["agents"]:
        own = told["tables"]["pooled"][name]["ndcg"]["value"]
        click.echo(f"  {name}: above {sum(one < own for one in values):,} of {len(values):,}")


def _show_sweep(run: Mapping[str, Any], *, has_table: bool) -> None:
    """The checkpoints of a run on training questions, and whether one has collapsed."""
    path, rows, chosen = run["path"], run["sweep"], run["checkpoint"]
    if has_table:
        heads = ("checkpoint", "nDCG@10", "steps", "least probability", "Terminate", "decisions")
        lines = [
            (
                one["checkpoint"] + " (chosen)" * (one["checkpoint"] == chosen),
                f"{one['train']['ndcg']['value']:.4f}",
                f"{one['train']['steps']:.2f}",
                f"{one['least_probability']:.1e}",
                f"{one['terminate']:.1%}",
                _shares(one["choices"]),
            )
            for one in rows
        ]
        click.echo(f"\n{path}: checkpoints on training questions\n\n{_table(heads, lines)}")
    least = min(one["least_probability"] for one in rows)
    most = max(one["terminate"] for one in rows)
    click.echo(
        f"\n{path}: {len(rows)} checkpoints, {chosen} chosen; the least probability of "
        f"a legal action is {least:.1e}, the largest share of Terminate among decisions {most:.1%}"
    )
    for one in rows:
        if one["has_collapsed"]:
            click.echo(
                f"  collapsed: {one['checkpoint']} ends in {one['terminate']:.0%} of its "
                f"decisions, and its least probability is {one['least_probability']:.1e}"
            )
