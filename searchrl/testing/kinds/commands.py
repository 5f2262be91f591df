"""Criteria of commands: C1 to C3.

Owns what a subcommand of `searchrl` must be. Its help is shown; the command itself is never run,
because it may do anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from searchrl.testing.criteria import Problem, criterion
from searchrl.testing.probes.subject import Subject

MAX_SHORT_HELP = 100
"""Characters that a line of `searchrl --help` may have."""


@criterion("C1")
def _is_command(subject: Subject) -> Iterator[Problem]:
    loaded: object = subject.entry.load()
    if not isinstance(loaded, click.Command):
        yield Problem(f"{type(loaded).__name__} is no click.Command", loaded)


@criterion("C2")
def _has_working_help(subject: Subject) -> Iterator[Problem]:
    command: Any = subject.entry.load()
    try:
        command.get_help(click.Context(command, info_name=subject.entry.name))
        command.get_short_help_str()
    except (Exception, SystemExit) as error:
        at = error if error.__traceback__ is not None else command.callback
        yield Problem(f"--help raised {type(error).__name__}: {error}", at)


@criterion("C3")
def _says_what_for(subject: Subject) -> Iterator[Problem]:
    command: Any = subject.entry.load()
    line = subject.entry.description or command.get_short_help_str(1000)
    if not (command.help or "").strip():
        yield Problem("the command has no help text", command.callback)
    elif len(line) > MAX_SHORT_HELP:
        yield Problem(f"its line in the help has {len(line)} characters", command.callback)
