"""`searchrl sop`: a folder of procedures, checked or searched. No model, no torch."""

from __future__ import annotations

import click


@click.group()
def sop() -> None:
    """Check a folder of procedures (SOPs), or find the one for a situation."""


@sop.command()
@click.argument("folder")
def check(folder: str) -> None:
    """Check every procedure in FOLDER; name each file and field that is wrong."""
    from searchrl_memory.procedures import load_procedures

    procedures = load_procedures(folder)
    categories = ", ".join(sorted({one.category for one in procedures} - {""}))
    click.echo(f"{len(procedures)} procedures are valid{categories and f' ({categories})'}")


@sop.command()
@click.argument("folder")
@click.argument("words")
@click.option("--retriever", default="bm25", metavar="NAME", help="The retriever that searches.")
@click.option(
    "--set", "assignments", multiple=True, metavar="K=V",
    help="A setting, such as retriever.model=FOLDER; may be repeated.",
)  # fmt: skip
@click.option("-k", default=3, type=click.IntRange(1), help="Procedures to show.")
def find(folder: str, words: str, retriever: str, assignments: tuple[str, ...], k: int) -> None:
    """Show the procedures in FOLDER that fit WORDS, the best one in full.

    \b
    Example:
      searchrl sop find sops/ "debug this"
    """
    from searchrl import ConfigError, load_plugins, make_retriever_factory, parse_sets
    from searchrl_memory.procedures import find_procedures, load_procedures

    settings = parse_sets(assignments)
    if unknown := settings.keys() - {"retriever"}:
        raise ConfigError(f"--set is for retriever.KEY=VALUE, not for '{min(unknown)}'")
    before = click.get_current_context().find_root().params.get("plugin") or ()
    registry = load_plugins(before, must_load=True)
    factory = make_retriever_factory(registry, retriever, settings.get("retriever", {}))
    found = find_procedures(load_procedures(folder), factory, words, k)
    if not found:
        raise ConfigError(f"no procedure in '{folder}' fits {words!r}; write words of its trigger")
    click.echo(str(found[0]))
    for one in found[1:]:
        click.echo(f"then {one.name}: {one.description}")
