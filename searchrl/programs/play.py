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
from searchrl.engine.rollout.rollout import Rollout
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import ConfigError

SHORTCUTS = {
    "s": (SEARCH, "s WORDS searches"),
    "a": (ANSWER, "a WORDS answers"),
    "c": (TOOL, "c TOOL {JSON} calls a tool"),
    "d": (ACT, "d WORDS acts"),
}
"""Short forms of a turn that a person may type: the kind of action, and its help."""

ReadLine = Callable[[], str | None]
"""Reads one line without its end; None when there is no more input."""


def read_turn(
    protocol: TagProtocol, read_line: ReadLine, complain: Callable[[str], None]
) -> str | None:
    """Read a shortcut, or raw lines up to a stop string or an empty line; None to leave."""
    lines: list[str] = []
    while (line := read_line()) is not None:
        head, _, rest = line.partition(" ")
        # Between tags it is a word of the turn.
        if line.strip().lower() == "quit" and not any("<" in one for one in lines):
            return None
        if not lines and rest.strip() and head in SHORTCUTS:
            kind, usage = SHORTCUTS[head]
            try:
                return protocol.render_turn(_read_shortcut(kind, rest.strip()), "")
            except ValueError:
                complain(f"this cannot be written as a turn of the game ({usage})")
                continue
        if not line.strip() and not lines:
            continue
        lines.append(line)
        if not line.strip() or any(stop in line for stop in protocol.stops):
            return "\n".join(lines).rstrip()
    return "\n".join(lines) or None


def _read_shortcut(kind: str, text: str) -> Action:
    """The action of a shortcut; ValueError if it is no call of a tool."""
    if kind != TOOL:
        return Action(kind, (text,)) if kind == SEARCH else Action(kind, text)
    name, _, rest = text.partition(" ")
    try:
        arguments = json.loads(rest or "{}")
    except RecursionError as error:
        raise ValueError from error
    if not isinstance(arguments, dict):
        raise ValueError
    return Action(kind, ToolCall(name, arguments))


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
    """The number of the task to play: `index`, or drawn from the seed; without either, any."""
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
    """Play one task of `config.eval.split`; returns None if the person left before its end."""
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
