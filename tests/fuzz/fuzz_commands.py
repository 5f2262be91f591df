"""Fuzzed command lines: every flag of every command, with values that do not fit it.

The flags are read from the commands themselves, so a new flag is fuzzed from the day it is there.
Commands that would train or time something get `--dry-run`, or a value that no such command takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

import click
from fuzz_judge import Case
from fuzz_values import draw_text, misspell

from searchrl.cli import main

_FIXED: dict[str, tuple[str, ...]] = {
    "train": ("--dry-run", "--model=tiny"),
    "sft": ("--dry-run", "--model=tiny"),
    "bench": ("--steps=0",),  # refused: what is said of the other flags does not depend on it
    "eval": ("--policy=scripted", "--num-tasks=1", "--no-forced"),
    "play": ("--index=0",),
    "check": ("no-such-thing",),
    "ask": ("no-such-run",),
    "export": ("no-such-run", "out"),
    "push": ("no-such-run", "me/it", "--dry-run"),
    "new": (),
    "config": (),
    "plugins": (),
    "runs": (),
}
"""What each command is given besides, so that a case is short and nothing is loaded."""
_KINDS = ("env", "reward", "retriever", "protocol", "tracker", "command", "algorithm", "x")


def command_lines(random: Random) -> Iterator[Case]:
    """A command with one to three flags."""
    while True:
        name = random.choice(list(_FIXED))
        words = [name, *_FIXED[name]]
        flags = _flags(name)
        for _ in range(random.choice((1, 1, 2, 3))):
            flag, takes_value = random.choice(flags)
            if random.random() < 0.1:
                flag = misspell(random, flag)
            words.append(f"{flag}={draw_text(random)}" if takes_value else flag)
        if name == "new":
            words[1:1] = [random.choice(_KINDS), draw_text(random)]
        elif random.random() < 0.15:
            words.append(draw_text(random))
        if random.random() < 0.05:
            words[0] = misspell(random, name)
        if random.random() < 0.03:
            words.insert(0, f"--plugin={draw_text(random)}")
        yield Case(tuple(words))


@cache
def _flags(name: str) -> tuple[tuple[str, bool], ...]:
    command = main.get_command(click.Context(main), name)
    assert command is not None, name
    return tuple(
        (one, not option.is_flag)
        for option in command.params
        if isinstance(option, click.Option)
        for one in (*option.opts, *option.secondary_opts)
    )
