"""`searchrl control sequences`: every fixed sequence of actions on training questions.

Owns the flags and what is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from searchrl_control.commands.surroundings import (
    FILE,
    collection_flag,
    ensure_writable,
    out_flag,
    read_settings,
    say,
    set_flag,
    write_out,
)

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
    from searchrl_control.comparison.oracle import measure_oracle
    from searchrl_control.comparison.runs import as_compared, open_envs
    from searchrl_control.comparison.sequences import describe, play_all
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
    _show(told)
    if has_oracle:
        told["oracle"] = measure_oracle(envs, TRAIN, training, training)
        show_oracle(told["oracle"], "training")
    write_out(out, told)


def show_oracle(told: Mapping[str, Any], split: str) -> None:
    """Say what choosing the best list of every question would win, and how much of that is luck."""
    if not told:
        return
    click.echo(
        f"\noracle over {len(told['kinds'])} sequences of different kinds, {split} questions "
        "(the control chooses among as many noisy copies of the best one)"
    )
    pooled = {"pooled": told["pooled"]} if len(told["each"]) > 1 else {}
    for name, margin in {**pooled, **told["each"]}.items():
        click.echo(
            f"  {name}: best {margin['best']:.4f}, oracle {margin['oracle']:.4f}, control "
            f"{margin['control']:.4f}: learnable {margin['learnable']:+.4f}"
        )


def _show(told: Mapping[str, Any]) -> None:
    counts = told["questions"]
    for name, best in told["best"].items():
        count = sum(counts.values()) if name == "pooled" else counts[name]
        if name == "pooled" and len(counts) == 1:
            continue
        click.echo(
            f"{name}: {count:,} training questions\n"
            f"  best         {best['ndcg']:.4f}  {best['sequence']}\n"
            f"  single pass  {best['single_pass']:.4f}\n"
            f"  --set 'network.start={best['start']}'"
        )
    means = told["ndcg"]["pooled"]
    click.echo(
        f"\n{told['sequences']:,} sequences on {sum(counts.values()):,} questions; the first:"
    )
    for name in sorted(means, key=lambda one: -means[one])[:_SHOWN]:
        click.echo(f"  {means[name]:.4f}  {name}")
