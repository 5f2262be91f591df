"""`searchrl config`: every key, its default and the reason. No torch, no plugins."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from typing import Any

import click

from searchrl.cli.commands.eval import eval
from searchrl.cli.commands.training import sft, train
from searchrl.cli.options import Option
from searchrl.config.keys import ConfigKey, config_keys, find_keys
from searchrl.screen.lines import say, style


@click.command()
@click.argument("key", required=False)
@click.option("--json", "is_json", is_flag=True, help="Print the keys as a JSON list.")
def config(key: str | None, is_json: bool) -> None:
    """Explain the configuration: every key's type, default and reason.

    KEY is a key or a section; without it, the whole tree is printed.

    \b
    Examples:
      searchrl config optim.lr
      searchrl config rollout
    """
    keys = config_keys() if key is None else find_keys(key)
    if is_json:
        say(json.dumps([_to_dict(k) for k in keys], indent=2, ensure_ascii=False))
        return
    for one in keys:
        _show(one)


def _to_dict(key: ConfigKey) -> dict[str, Any]:
    options = [one for command in (train, sft, eval) for one in command.params]
    flags = [
        "/".join((*one.opts, *one.secondary_opts))
        for one in options
        if isinstance(one, Option) and one.key in (key.key, key.path) and one.key
    ]
    return {
        "key": key.key,
        "section": key.section,
        "type": key.type.replace("`", ""),
        "default": key.default.strip("`"),
        # Without code marks and the targets of links.
        "why": re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", key.why).replace("`", ""),
        "flags": list(dict.fromkeys(flags)),
    }


def _show(key: ConfigKey) -> None:
    known = _to_dict(key)
    if key.type == "section":
        say(style(key.key, bold=True), f": {known['why']}")
        return
    default = known["default"]
    shown = f" = {default}" if default not in ("below", "required") else f" ({default})"
    facts = style(", ".join([known["type"], *known["flags"]]), dim=True)
    say(style(key.key, fg="cyan"), f"{shown}  ", facts)
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    say(textwrap.indent(textwrap.fill(known["why"], width - 4), "    "))
