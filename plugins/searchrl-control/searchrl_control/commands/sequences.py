"""`searchrl control sequences`: every fixed sequence of actions on training questions.

Owns the flags and what is printed. Test questions are not played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from searchrl_control.commands.surroundings import (
    FILE,
    collection_flag,
    ensure_writable,
    out_flag,
    plugin_flag,
    read_settings,
    say,
    set_flag,
    write_out,
)


@click.command("sequences")
@collection_flag
@click.option(
    "--config", type=FILE, metavar="FILE",
    help="Take the collections and settings of a configuration.",
)  # fmt: skip
@set_flag
@click.option("--only", metavar="A,B", help="These actions alone, such as Fuse,Follow,Hop.")
@click.option(
    "--top", type=click.IntRange(1, 1_000), default=5, show_default=True, metavar="N",
    help="Sequences to print of the pool.",
)  # fmt: skip
@click.option("--oracle", "has_oracle", is_flag=True, help="Also what an oracle would win.")
@out_flag
@plugin_flag
def sequences(
    names: tuple[str, ...],
    config: Path | None,
    assignments: tuple[str, ...],
    only: str | None,
    top: int,
    has_oracle: bool,
    out: Path | None,
    plugins: tuple[str, ...],
) -> None:
    """Play every fixed sequence of actions on the training questions of collections.

    Prints the best sequence of each collection and of all their questions pooled, as a setting for
    a network that begins with it.

    \b
    Examples:
      searchrl control sequences --collection data/scifact --set env.actions=heads
      searchrl control sequences --config run.yaml --only Fuse,Hop --out sequences.json
    """
    from searchrl_retrieval.commands.surroundings import load_registry

    from searchrl import ConfigError, load_yaml
    from searchrl_control.collections.judged import TRAIN
    from searchrl_control.comparison.fixed import FixedSequences
    from searchrl_control.comparison.opening import open_envs
    from searchrl_control.comparison.runs import settings_of
    from searchrl_control.training.folder import build_settings

    ensure_writable(out)
    if bool(names) == bool(config):
        raise ConfigError("name collections with --collection, or a configuration with --config")
    changes = read_settings(assignments)
    settings: Sequence[Mapping[str, Any]]
    if config is not None:
        settings = settings_of(build_settings(load_yaml(config)).envs, f"'{config}'", changes)
    else:
        settings = [{**changes, "collection": name} for name in dict.fromkeys(names)]
    envs = open_envs(settings, load_registry(plugins))
    fixed = FixedSequences(envs, _read_only(only), say)
    told = fixed.describe()
    _show(told, top)
    if has_oracle:
        told["oracle"] = fixed.measure_oracle(TRAIN, fixed.training)
        show_oracle(told["oracle"], "training")
    write_out(out, told)


def show_oracle(told: dict[str, Any], split: str) -> None:
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


def _show(told: dict[str, Any], top: int) -> None:
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
    for name in sorted(means, key=lambda one: -means[one])[:top]:
        click.echo(f"  {means[name]:.4f}  {name}")


def _read_only(text: str | None) -> list[Any] | None:
    """The actions in a list of names."""
    from searchrl import ConfigError, suggest
    from searchrl_control.environment.actions import Action

    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [str(action) for action in Action]
    for name in names:
        if name not in known:
            raise ConfigError(f"--only: there is no action {name!r}.{suggest(name, known)}")
    return [Action(name) for name in names]
