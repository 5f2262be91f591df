"""`searchrl trust`: allows for good what a run folder names. No torch, and nothing is run."""

from __future__ import annotations

from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command
from searchrl.screen.lines import print_json, say, style


@click.command(cls=Command)
@click.argument("run", metavar="RUN")
@options.JSON
def trust(run: str, **values: Any) -> None:
    """Allow for good what a run folder names and may not use without you.

    Plugins, paths, addresses, models, and all other text in the settings of plugins. Look at it
    first: code runs with your rights, and a server gets your queries and the key that is named for
    it. What is remembered is the hash of each, in your own state folder; a file that changes is
    asked for again. What your own runs name is trusted on this machine.

    \b
    Examples:
      searchrl trust runs/from-a-colleague
      searchrl eval runs/from-a-colleague --trust
    """
    from searchrl.plugins import load_plugins
    from searchrl.run_folder import Run
    from searchrl.trust.needs import find_needs
    from searchrl.trust.permission import trust as remember

    opened = Run.find(run) or Run.open(run)
    needs = find_needs(opened.config, load_plugins(()), opened.path)
    remember(needs, opened.path)
    if values["json"]:
        rows = [{"what": n.what, "value": n.value, "key": n.key, "hash": n.digest()} for n in needs]
        print_json({"trusted": rows})
        return
    for need in needs:
        say(style("trusted: ", fg="green"), str(need))
    if not needs:
        say(f"{opened.path} names nothing that needs permission")
