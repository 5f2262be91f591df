"""`searchrl export` and `searchrl push`: the policy of a run for other programs, and on the Hub."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option, together
from searchrl.screen.lines import print_json, say

EXPORTED = together(
    option("--merge", "Whole weights: add the adapter to its base.", is_flag=True),
    option("--base ID", "Hub id of the adapter's base, if it was a folder here."),
)


@click.command(cls=Command)
@click.argument("run", metavar="RUN")
@click.argument("folder", metavar="DIR")
@EXPORTED
@options.LOADED
def export(run: str, folder: str, **values: Any) -> None:
    """Write the policy of a run as a folder that other programs load.

    RUN is a run folder or a checkpoint of one (RUN/checkpoints/step_000040). DIR gets the adapter,
    or whole weights where no adapter was trained or --merge is given, the tokenizer, and a model
    card. No file names a folder of this machine.

    \b
    Examples:
      searchrl export runs/mine exported
      searchrl export runs/mine exported --merge
    """
    from searchrl.cli.loading import load_run
    from searchrl.runs.export import export_policy
    from searchrl.runs.source import Source

    source = Source.open(run)
    _, registry = load_run(source.run)
    exported = export_policy(
        source, Path(folder), registry, merge=values["merge"], base=values["base"]
    )
    if values["json"]:
        print_json(exported.to_dict())
        return
    _show_files(exported.to_dict())
    if exported.is_complete:
        # As its run was evaluated: the run's file has the plugins and all settings.
        words = ["searchrl", "eval", "--config", str(source.run.path / "config.yaml")]
        words += ["--model", folder]
        if source.run.config.init_from is not None:
            words += ["--set", "init_from=null"]  # else the weights that the run began with
        say(f"Next:  {shlex.join(words)}")


@click.command(cls=Command)
@click.argument("run", metavar="RUN")
@click.argument("repo", metavar="USER/NAME")
@EXPORTED
@option("--private", "Make a new repository private.", is_flag=True)
@option("--dry-run", "Show files and model card; upload nothing.", is_flag=True)
@options.LOADED
def push(run: str, repo: str, **values: Any) -> None:
    """Put the policy of a run on the Hugging Face Hub, with a model card.

    The card is made from the run: figures, training, plugins. The repository is made if it is not
    there. Log in first: hf auth login, or HF_TOKEN.

    \b
    Examples:
      searchrl push runs/mine me/handbook-agent --dry-run
      searchrl push runs/mine me/handbook-agent --merge --private
    """
    from searchrl.cli.loading import load_run
    from searchrl.runs.push import push_policy
    from searchrl.runs.source import Source

    source = Source.open(run)
    _, registry = load_run(source.run)
    exported, card, url = push_policy(
        source,
        repo,
        registry,
        merge=values["merge"],
        base=values["base"],
        is_private=values["private"],
        is_dry=values["dry_run"],
    )
    if values["json"]:
        print_json({**exported, "card": card, "url": url or None})
        return
    _show_files(exported)
    if url:
        say(url)
        return
    say("\nREADME.md:\n")
    say(card)
    say("dry run: nothing was uploaded")


def _show_files(exported: dict[str, Any]) -> None:
    from searchrl.engine.memory.plan import format_bytes

    kinds = {
        "adapter": f"a LoRA adapter on {exported['base']}",
        "merged": "an adapter merged into whole weights",
        "whole": "whole weights",
    }
    say(f"{exported['path']}: {kinds[exported['kind']]}")
    width = max(map(len, exported["files"]))
    for name, size in exported["files"].items():
        say(f"  {name:<{width}}  {format_bytes(size)}")
    for note in exported["notes"]:
        say(f"note: {note}")
