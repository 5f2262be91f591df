"""A person as the policy: plays one episode of an environment through the rollout driver.

Owns the person as a scripted policy whose script is typed in, and the shortcuts for tags. A person
gets what a model gets: the same prompt, observations and scores. No torch. Caller: `searchrl play`,
which reads and writes the lines.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from searchrl.config import RunConfig
from searchrl.contracts import TagProtocol
from searchrl.core.episode import ACT, ANSWER, SEARCH, TOOL, Action, ToolCall
from searchrl.engine.episodes.dialogue import RolloutRequest
from searchrl.engine.episodes.drivers import make_scripted_driver
from searchrl.engine.episodes.rollout import Rollout
from searchrl.engine.episodes.world import TaskWorld
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import ConfigError

SHORTCUTS = {"s": SEARCH, "a": ANSWER, "c": TOOL, "d": ACT}
"""`s words` searches, `a words` answers, `c name {json}` calls a tool, `d words` does it (acts);
`t words` is the thought of the next of these."""

ReadLine = Callable[[], str | None]
"""Reads one line without its end; None when there is no more input."""


def read_turn(
    protocol: TagProtocol, read_line: ReadLine, complain: Callable[[str], None]
) -> str | None:
    """Read one turn: a shortcut, or raw lines up to a stop string or an empty line.

    Returns None at the end of input. `complain` is told of a shortcut the protocol cannot write.
    """
    lines: list[str] = []
    thought = ""
    while (line := read_line()) is not None:
        head, _, rest = line.partition(" ")
        if not lines and rest.strip() and head == "t":
            thought = rest.strip()
            continue
        if not lines and rest.strip() and head in SHORTCUTS:
            try:
                action = _read_shortcut(SHORTCUTS[head], rest.strip())
                return protocol.render_turn(action, thought)
            except ValueError as error:
                complain(str(error))
                continue
        if not line.strip() and not lines:
            continue
        lines.append(line)
        if not line.strip() or any(stop in line for stop in protocol.stops):
            return "\n".join(lines).rstrip()
    return "\n".join(lines) or None


def _read_shortcut(kind: str, text: str) -> Action:
    """The action of a shortcut; ValueError says how a call is written."""
    if kind == SEARCH:
        return Action(kind, (text,))
    if kind in (ANSWER, ACT):
        return Action(kind, text)
    name, _, rest = text.partition(" ")
    try:
        arguments = json.loads(rest or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise ValueError(f'a call is written: c {name} {{"argument": value}}')
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


def play_episode(
    world: TaskWorld,
    config: RunConfig,
    *,
    index: int | None,
    show: Callable[[str], None],
    read: Callable[[], str | None],
) -> Rollout | None:
    """Play one task of `config.eval.split`; returns None if the person left before its end.

    Args:
        world: where the task comes from.
        config: limits, split and seed.
        index: number of the task; drawn from the seed if None.
        show: receives the prompt and every observation.
        read: returns the next turn, None at the end of input.

    Raises:
        ConfigError: if the split has no task of that number.
    """
    split = config.eval.split
    count = world.num_tasks(split)
    if index is None:
        index = random.Random(config.seed).randrange(count)
    if not 0 <= index < count:
        raise ConfigError(
            f"env '{world.name}' has no task {index} in split '{split}': its {count} tasks are "
            f"numbered from 0 to {count - 1}"
        )
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
