"""A person as the policy: plays one episode of an environment through the rollout driver.

Owns the person as a scripted policy whose script is typed in, and the shortcuts for tags. A person
gets what a model gets: the same prompt, observations and scores. No torch.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from searchrl.config import RunConfig
from searchrl.contracts import TagProtocol
from searchrl.core.episode import ACT, ANSWER, SEARCH, TOOL, Action, ToolCall
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import make_scripted_driver
from searchrl.engine.rollout.playing import Rollout
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import ConfigError

SHORTCUTS = {"s": SEARCH, "a": ANSWER, "c": TOOL, "d": ACT}
"""`s words` searches, `a words` answers, `c name {json}` calls a tool, `d words` does it (acts);
`t words` is the thought of the next of these."""

NAMES = {SEARCH: "search", ANSWER: "answer", TOOL: "tool call", ACT: "act"}
"""What a person calls the kinds of action."""

HELP, QUIT = "help", "quit"
"""Lines that are no turns."""

ReadLine = Callable[[], str | None]
"""Reads one line without its end; None when there is no more input."""


def read_turn(
    protocol: TagProtocol,
    read_line: ReadLine,
    complain: Callable[[str], None],
    *,
    show_help: Callable[[], None] = lambda: None,
) -> str | None:
    """Read one turn: a shortcut, or raw lines up to a stop string or an empty line.

    Args:
        protocol: writes the turn of a shortcut.
        read_line: gives the next line.
        complain: told of a shortcut that the protocol cannot write.
        show_help: called for the line `help`.

    Returns None at the end of input and for the line `quit`.
    """
    lines: list[str] = []
    thought = ""
    while (line := read_line()) is not None:
        head, _, rest = line.partition(" ")
        # Between tags they are words of the turn. Without any, somebody is lost in plain lines.
        has_tags = any("<" in one for one in lines)
        if not has_tags and line.strip().lower() == HELP:
            show_help()
            continue
        if not has_tags and line.strip().lower() == QUIT:
            return None
        if not lines and rest.strip() and head == "t":
            thought = rest.strip()
            continue
        if not lines and rest.strip() and head in SHORTCUTS:
            kind = SHORTCUTS[head]
            if (action := _read_shortcut(kind, rest.strip())) is None:
                complain('a call is written: c NAME {"argument": value}')
                continue
            try:
                return protocol.render_turn(action, thought)
            except ValueError:
                complain(f"this game has no {NAMES[kind]}; help shows what it has")
                continue
        if not line.strip() and not lines:
            continue
        lines.append(line)
        if not line.strip() or any(stop in line for stop in protocol.stops):
            return "\n".join(lines).rstrip()
    return "\n".join(lines) or None


def _read_shortcut(kind: str, text: str) -> Action | None:
    """The action of a shortcut; None if it is no call of a tool."""
    if kind != TOOL:
        return Action(kind, (text,)) if kind == SEARCH else Action(kind, text)
    name, _, rest = text.partition(" ")
    try:
        arguments = json.loads(rest or "{}")
    except (ValueError, RecursionError):
        return None
    return Action(kind, ToolCall(name, arguments)) if isinstance(arguments, dict) else None


class _Left(BaseException):
    """The input has ended. This is not a failure of a script, so it is not an `Exception`."""


@dataclass(frozen=True, slots=True)
class Person:
    """A scripted policy (`contracts.Expert`) whose script is typed in."""

    show: Callable[[str], None]
    read: Callable[[], str | None]

    def act(self, observation: str) -> str:
        """Show what came back, return the turn typed in reply."""
        self.show(observation)
        turn = self.read()
        if turn is None:
            raise _Left
        return turn


def choose_task(world: TaskWorld, split: str, index: int | None, seed: int | None) -> int:
    """The number of the task to play: `index`, or drawn from the seed; without either, any.

    Raises:
        ConfigError: if the split has no task of that number.
    """
    count = world.num_tasks(split)
    if index is None:
        return random.Random(seed).randrange(count)
    if not 0 <= index < count:
        raise ConfigError(
            f"env '{world.name}' has no task {index} in split '{split}': its {count} tasks are "
            f"numbered from 0 to {count - 1}"
        )
    return index


def play_episode(
    world: TaskWorld,
    config: RunConfig,
    *,
    index: int,
    show: Callable[[str], None],
    read: Callable[[], str | None],
) -> Rollout | None:
    """Play one task of `config.eval.split`; returns None if the person left before its end.

    Args:
        world: where the task comes from.
        config: limits, split and seed.
        index: number of the task, from `choose_task`.
        show: receives the prompt and every observation.
        read: returns the next turn, None at the end of input.
    """
    split = config.eval.split
    request = RolloutRequest(
        group_id=f"play/{index}",
        world=world,
        split=split,
        index=index,
        rng_keys=(mix_key(config.seed, index),),
        script=lambda env, task, protocol: Person(show, read),
    )
    try:
        return make_scripted_driver(config).run([request])[0].rollouts[0]
    except _Left:
        return None
