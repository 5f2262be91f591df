"""`searchrl export` and `searchrl push`: the policy of a run for other programs, and on the Hub.

Owns what is printed. `searchrl.results` writes the folder, the model card and the upload.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl.cli.json_output import print_json
from searchrl.cli.lines import say
from searchrl.cli.options import EXPORT, PUSH, GroupedCommand, options, read_layers
from searchrl.config.policy import is_registered

if TYPE_CHECKING:
    from searchrl.plugins import Registry
    from searchrl.results.source import Source


@click.command(cls=GroupedCommand)
@click.argument("run", metavar="RUN")
@click.argument("folder", metavar="DIR")
@options(EXPORT)
def export(run: str, folder: str, **values: Any) -> None:
    """Write the policy of a run as a folder that other programs load.

    RUN is a run folder or a checkpoint of one (RUN/checkpoints/step_000040). DIR gets the adapter,
    or whole weights where no adapter was trained or --merge is given, the tokenizer, and a model
    card. A network of choices is its weights and policy.json. No file names a folder of this
    machine.

    \b
    Examples:
      searchrl export runs/mine exported
      searchrl export runs/mine exported --merge
    """
    from searchrl.results.export import export_policy

    source, registry = _open(run, values)
    exported = export_policy(
        source, Path(folder), registry, merge=bool(values["merge"]), base=values["base"]
    )
    if values["json"]:
        print_json(exported.to_dict())
        return
    _show_files(exported.to_dict())
    for note in exported.notes:
        say(f"note: {note}")
    if exported.is_complete:
        say(f"Next:  {_eval_line(source, folder)}")


def _eval_line(source: Source, folder: str) -> str:
    """Evaluate an export as its run was: the run's file has the plugins and all settings."""
    words = ["searchrl", "eval", "--config", str(source.run.path / "config.yaml")]
    if is_registered(source.config.policy.name):
        return shlex.join([*words, "--set", f"init_from={folder}"])
    words += ["--model", folder]
    if source.config.init_from is not None:
        words += ["--set", "init_from=null"]  # else the weights that the run began with
    return shlex.join(words)


@click.command(cls=GroupedCommand)
@click.argument("run", metavar="RUN")
@click.argument("repo", metavar="USER/NAME")
@options(PUSH)
def push(run: str, repo: str, **values: Any) -> None:
    """Put the policy of a run on the Hugging Face Hub, with a model card.

    The card is made from the run: figures, training, plugins. The repository is made if it is not
    there. Log in first: hf auth login, or HF_TOKEN.

    \b
    Examples:
      searchrl push runs/mine me/handbook-agent --dry-run
      searchrl push runs/mine me/handbook-agent --merge --private
    """
    from searchrl.results.push import push_policy

    source, registry = _open(run, values)
    pushed = push_policy(
        source,
        repo,
        registry,
        merge=bool(values["merge"]),
        base=values["base"],
        is_private=bool(values["private"]),
        is_dry=bool(values["dry_run"]),
    )
    if values["json"]:
        facts = {**pushed.exported, "card": pushed.card, "url": pushed.url or None}
        print_json(facts)
        return
    _show_files(pushed.exported)
    for note in pushed.exported["notes"]:
        say(f"note: {note}")
    if pushed.url:
        say(pushed.url)
        return
    say("\nREADME.md:\n")
    say(pushed.card)
    say("dry run: nothing was uploaded")


def _open(run: str, values: dict[str, Any]) -> tuple[Source, Registry]:
    """The run and its plugins."""
    from searchrl.cli.loading import load_registry
    from searchrl.config import build_config
    from searchrl.results.source import Source

    source = Source.open(run)
    layers = read_layers(values, EXPORT)
    config = build_config(source.config.to_dict(), *layers)
    return source, load_registry(config, source.run.path)


def _show_files(exported: dict[str, Any]) -> None:
    from searchrl.engine.memory.plan import format_bytes

    kinds = {
        "adapter": f"a LoRA adapter on {exported['base']}",
        "merged": "an adapter merged into whole weights",
        "whole": "whole weights",
        "network": "a network of choices, for SearchRL",
    }
    say(f"{exported['path']}: {kinds[exported['kind']]}")
    width = max(map(len, exported["files"]))
    for name, size in exported["files"].items():
        say(f"  {name:<{width}}  {format_bytes(size)}")
