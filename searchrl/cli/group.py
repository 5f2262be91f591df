"""The `searchrl` command group: finds commands, and turns errors into one clear message.

All commands come from the plugin registry and are imported when they run. Boundary errors end with
their own exit code, Ctrl-C with 130, SIGTERM with 143, SIGHUP with 129. All other errors are bugs
and keep their traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from searchrl import __version__
from searchrl.engine.learning.torchrun import read_place
from searchrl.errors import (
    AlarmStop,
    BudgetSpent,
    CheckError,
    PluginError,
    SearchRLError,
    Stopped,
    UnknownNameError,
    suggest,
)
from searchrl.plugins import Origin, Registry, load_plugins
from searchrl.plugins.registry import NOT_FOUND
from searchrl.screen.lines import clean_streams, say, shorten, style
from searchrl.tool_calls import STUCK_S, watch

_BY_SIGNAL = 128
"""Exit code of a program that a signal ended: this and the signal's number, as shells have it."""

_REGISTRY = "searchrl.plugins.registry"


class CommandGroup(click.Group):
    """A click group of the commands that the loaded plugins register."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands: built-in ones in their own order, then the others."""
        registry = _registry(ctx)
        names = registry.names("command")
        commands = [entry for entry in registry.entries() if entry.kind == "command"]
        first = [e.name for e in commands if e.owner.origin is Origin.BUILTIN and e.name in names]
        return list(dict.fromkeys((*first, *names)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is none of that name."""
        try:
            entry = _registry(ctx).get("command", cmd_name)
        except UnknownNameError:
            return None
        command: object = entry.load()
        if not isinstance(command, click.Command):
            raise PluginError(
                f"{entry}: expected a click.Command, got {type(command).__name__}; "
                "decorate the function with @click.command()"
            )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a command line; an unknown one gets near matches."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = suggest(name, self.list_commands(ctx))
            raise click.UsageError(f"unknown command '{name}'.{known}{NOT_FOUND}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them, then the plugins that are not loaded."""
        registry, names = _registry(ctx), self.list_commands(ctx)
        width = formatter.width - 6 - max(map(len, names), default=0)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._describe(ctx, name, width)) for name in names])
        notes = [*map(str, registry.failures), *registry.conflicts]
        if notes:
            with formatter.section("Not loaded (details: searchrl plugins)"):
                for note in notes:
                    formatter.write_text(note)

    def _describe(self, ctx: click.Context, name: str, width: int) -> str:
        """The line of a command in the help. It never raises, whatever a plugin registered."""
        try:
            entry = _registry(ctx).get("command", name)
            command = None if entry.description else self.get_command(ctx, name)
        except PluginError as error:
            return f"(cannot be loaded: {error})"
        return command.get_short_help_str(width) if command else entry.description

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line; the module's docstring says what happens to errors."""
        for stream in (sys.stdout, sys.stderr):
            # A terminal that knows only ASCII then shows a question mark; the run does not end.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        clean_streams()
        try:
            with _raising_on_signals():
                return super().main(*args, **extra)
        except SearchRLError as error:
            # Only the first process prints. An alarm has said how to go on, as its last line.
            if not read_place().is_first or isinstance(error, AlarmStop | BudgetSpent):
                pass
            elif isinstance(error, CheckError):  # with the tokens around the place
                from searchrl.screen.terminal import show_check_error

                show_check_error(error)
            else:
                say(style("Error:", fg="red", bold=True), f" {shorten(str(error))}", err=True)
            sys.exit(error.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = shorten(error.message)  # type: ignore[misc]
            raise
        except KeyboardInterrupt as error:
            try:
                # One with a text comes from a run that has said how to go on, as its last line.
                if read_place().is_first and not error.args:
                    say("\nInterrupted.", err=True)
                sys.stdout.flush()
            except (OSError, ValueError):  # the terminal is gone after SIGHUP
                nowhere = os.open(os.devnull, os.O_WRONLY)
                for number in (1, 2):
                    os.dup2(nowhere, number)
            ctx.exit(_BY_SIGNAL + getattr(error, "number", signal.SIGINT))


@contextmanager
def _raising_on_signals() -> Iterator[None]:
    """End a command at SIGTERM and SIGHUP as at Ctrl-C, unless they are caught or ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: Any) -> None:
        raise Stopped(number)

    caught = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    heard = [number for number in caught if signal.getsignal(number) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _registry(ctx: click.Context) -> Registry:
    """The plugins of this command line: installed ones and the group's own `--plugin`."""
    root = ctx.find_root()
    if _REGISTRY not in root.meta:
        root.meta[_REGISTRY] = load_plugins(root.params.get("plugin") or ())
    registry: Registry = root.meta[_REGISTRY]
    return registry


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start here:  searchrl train --env regulations --reward format+em",
)
@click.version_option(__version__, prog_name="searchrl")
@click.option(
    "--plugin",
    multiple=True,
    is_eager=True,
    metavar="FILE",
    help="A plugin file or module to load before the command is looked up.",
)
def main(plugin: tuple[str, ...]) -> None:
    """Reinforcement learning of search agents: language models that think, search and answer."""
    watch(STUCK_S)
