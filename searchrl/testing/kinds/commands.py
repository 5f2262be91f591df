"""Criteria of commands: C1 to C3.

Owns what a subcommand of `searchrl` is held to. Its help is shown, the command itself is never run:
nobody knows what it would do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from searchrl.errors import ConfigError
from searchrl.plugins.registry import Entry, Registry
from searchrl.testing.criteria import Criterion, NotApplicable, Problem, criterion

MAX_SHORT_HELP = 100
"""Characters that a line of `searchrl --help` may have."""


@dataclass(frozen=True, slots=True)
class CommandSubject:
    """One registered command."""

    registry: Registry
    entry: Entry
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, registry: Registry, entry: Entry, settings: Mapping[str, Any] | None = None
    ) -> CommandSubject:
        """The subject of a registration; raises `ConfigError` for settings: it has none."""
        if settings:
            raise ConfigError(f"command '{entry.name}' takes no settings; its flags are its own")
        return cls(registry, entry)

    def command(self) -> click.Command:
        """The command, for every criterion but the first."""
        loaded: object = self.entry.load()
        if not isinstance(loaded, click.Command):
            raise NotApplicable("it is no click.Command (C1)")
        return loaded


@criterion(
    "C1",
    "is a click.Command",
    "`searchrl NAME` hands the rest of the command line to it.",
)
def is_command(subject: CommandSubject) -> Iterator[Problem]:
    """C1."""
    loaded: object = subject.entry.load()
    if not isinstance(loaded, click.Command):
        yield Problem(
            f"{type(loaded).__name__} is no click.Command",
            "decorate the function with @click.command(), and register what comes of it",
            loaded,
        )


@criterion(
    "C2",
    "shows its help",
    "It is the first thing that anybody tries.",
)
def has_working_help(subject: CommandSubject) -> Iterator[Problem]:
    """C2."""
    command = subject.command()
    try:
        context = click.Context(command, info_name=subject.entry.name)
        command.get_help(context)
        command.get_short_help_str()
    except (Exception, SystemExit) as error:
        yield Problem(
            f"--help raised {type(error).__name__}: {error}",
            "mend the option or the type whose help it is",
            error if error.__traceback__ is not None else command.callback,
        )


@criterion(
    "C3",
    "says what it is for",
    "`searchrl --help` lists it with one line.",
)
def says_what_for(subject: CommandSubject) -> Iterator[Problem]:
    """C3."""
    command = subject.command()
    if not (command.help or "").strip():
        yield Problem(
            "the command has no help text", "give its function a docstring", command.callback
        )
    elif len(line := subject.entry.description or command.get_short_help_str(1000)) > (
        MAX_SHORT_HELP
    ):
        yield Problem(
            f"its line in the help has {len(line)} characters",
            f"say it in {MAX_SHORT_HELP}, as description= or in the docstring's first sentence",
            command.callback,
        )


COMMAND_CRITERIA: tuple[Criterion[CommandSubject], ...] = (
    is_command,
    has_working_help,
    says_what_for,
)
"""Everything a command is held to, in order."""
