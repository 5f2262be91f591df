"""Drawings of a rollout by its protocol, environment and rewards, as JSON for its row.

A drawing that fails is a text that says so; it never ends an episode or a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from searchrl.contracts.playing import Drawer
from searchrl.core.drawing import Drawing, Table, Text, find_drawings_problem
from searchrl.core.episode import Episode
from searchrl.engine.rollout.world import Env, TaskWorld
from searchrl.plugins.registry import describe_error
from searchrl.tool_calls import DeadlineExceeded, Pinned, call_with_deadline

MAX_DRAWINGS = 8
"""Drawings of one object in one rollout: every row of a run holds them."""


def draw_rollout(world: TaskWorld, episode: Episode) -> list[dict[str, Any]]:
    """The drawings of an episode: `{"by", "kind", "title", …}` each, with its own fields."""
    drawn: list[dict[str, Any]] = []
    env = world.acquire()
    for who, drawer in _find_drawers(world, env):
        if who not in world.not_drawing:
            at_home = env if who == world.who["env"] else None
            drawings = _ask(world, who, drawer, episode, at_home)
            drawn += [
                {"by": who, "kind": type(drawing).__name__.lower(), **asdict(drawing)}
                for drawing in drawings
            ]
    world.release(env)
    if changed := [
        (number, one.text, one.original)
        for number, turn in enumerate(episode.turns, 1)
        for one in turn.passages
        if one.original
    ]:
        table = Table("changed passages", ("turn", "shown", "original"), changed)
        drawn.append({"by": "wrapper 'altered'", "kind": "table", **asdict(table)})
    return drawn


def _find_drawers(world: TaskWorld, env: Pinned[Env]) -> Iterator[tuple[str, Drawer]]:
    objects: dict[str, object] = {world.who["protocol"]: world.protocol.inner}
    with suppress(Exception):  # an environment that can be made no more has failed its episodes
        objects[world.who["env"]] = env.ask(lambda env: env.unwrapped)
    scorer = world.scorer
    objects |= {scorer.owners[name]: one for name, one in scorer.component_of.items()}
    for who, one in objects.items():
        if isinstance(one, Drawer):
            yield who, one


def _ask(
    world: TaskWorld, who: str, drawer: Drawer, episode: Episode, env: Pinned[Env] | None
) -> list[Drawing]:
    try:
        draw = partial(drawer.draw_episode, episode)
        if env is not None:
            drawings = env.ask(lambda _: draw(), world.timeout_s)
        else:
            drawings = call_with_deadline(draw, timeout_s=world.timeout_s, owner=who)
    except DeadlineExceeded as error:
        world.not_drawing.add(who)
        return [Text("could not be drawn", describe_error(error))]
    except (Exception, SystemExit) as error:  # a plugin's sys.exit() must not end the run
        return [Text("could not be drawn", f"draw_episode() raised {describe_error(error)}")]
    if problem := find_drawings_problem(drawings):
        return [Text("could not be drawn", f"draw_episode() returned {problem}")]
    shown = list(drawings[:MAX_DRAWINGS])
    if len(drawings) > MAX_DRAWINGS:
        left = len(drawings) - MAX_DRAWINGS
        shown.append(
            Text("more drawings", f"{left} more are not shown: a row holds {MAX_DRAWINGS}")
        )
    return shown
