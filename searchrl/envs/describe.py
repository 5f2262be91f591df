"""Spaces in words: names of actions, and observations as text.

`searchrl/assets/games.json` has the goals and action names of Gymnasium's own text games, from its
documentation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from pydantic.dataclasses import dataclass

from searchrl.envs.word_lists import ASSETS, EXACT, load_word_list
from searchrl.errors import ConfigError

Space = gymnasium.Space[Any]


@dataclass(frozen=True, slots=True, config=EXACT)
class Game:
    """An environment in words: its goal, its actions, the parts of its observations."""

    goal: str
    actions: tuple[str, ...]
    parts: tuple[str, ...] = ()


@cache
def load_games() -> dict[str, Game]:
    """Gymnasium's text games by the name in their id (`FrozenLake` of `FrozenLake-v1`)."""
    return load_word_list(dict[str, Game], ASSETS / "games.json")


class Actions:
    """The actions of an environment in words: those of a `Discrete` space, or any text.

    `names` are in the order of the numbers; without them, actions are named by their numbers.
    Another space, or names that do not fit it, raise `ConfigError`.
    """

    def __init__(self, space: Space, names: Sequence[str] | None, env: str) -> None:
        self.space = space
        self._is_text, self._start, count = isinstance(space, Text), 0, 0
        if isinstance(space, Discrete):
            self._start, count = int(space.start), int(space.n)
        elif not self._is_text:
            raise unsupported(env, "actions", space)
        numbers = [str(self._start + place) for place in range(count)]
        self._names = numbers if names is None else [str(name) for name in names]
        if (
            names is not None
            and not len(self._names) == len({*map(_key, self._names)}) == count > 0
        ):
            raise ConfigError(
                f"env {env}: action_names must be different names, one per action of a Discrete "
                f"space; the space is {space}, and they are {self._names}"
            )
        self._places = {_key(n): i for one in (numbers, self._names) for i, n in enumerate(one)}

    def listed(self, mask: Any = None) -> str:
        """The legal actions as a sentence's end: `left, down, right, up`."""
        if self._is_text:
            return "any text that is short enough"
        names = [self._names[place] for place in self._legal(mask)]
        if len(names) > 40:
            return f"{names[0]}, {names[1]}, …, {names[-1]} ({len(names)} of them)"
        return ", ".join(names)

    def parse(self, text: str, mask: Any = None) -> Any:
        """The legal action that `text` names (name or number, any case); None if there is none."""
        if self._is_text:
            return text if self.space.contains(text) else None
        place = self._places.get(_key(text))
        return self._start + place if place in self._legal(mask) and place is not None else None

    def sample(self, rng: Random, mask: Any = None) -> str:
        """A legal action in words."""
        if self._is_text:
            self.space.seed(rng.getrandbits(31))
            return str(self.space.sample())
        return self._names[rng.choice(self._legal(mask))]

    def _legal(self, mask: Any) -> list[int]:
        """Positions of the legal actions; a mask that allows nothing is ignored."""
        if mask is None:
            return list(range(len(self._names)))
        return [int(i) for i in np.flatnonzero(np.asarray(mask))] or self._legal(None)


def has_numbers(space: Space) -> bool:
    """True if `tell_numbers` can tell the values of a space."""
    if isinstance(space, Dict):
        return all(isinstance(part, Box | Discrete) for part in space.values())
    if isinstance(space, Tuple):
        return all(isinstance(part, Discrete) for part in space)
    return isinstance(space, Discrete | MultiDiscrete | MultiBinary | Box)


def tell_numbers(space: Space, value: Any, names: Sequence[str] = ()) -> str:
    """The first 16 numbers of an observation (`your sum 14`), a line for each part of a `Dict`."""
    if isinstance(space, Dict):
        return "\n".join(f"{key} {tell_numbers(space[key], value[key])}" for key in space)
    numbers = np.asarray(value).flatten().tolist()
    labels = names if len(names) == len(numbers) else [""] * len(numbers)
    told = [
        f"{label} {number if isinstance(number, int) else format(number, '.3g')}".strip()
        for label, number in zip(labels, numbers, strict=True)
    ]
    return ", ".join([*told[:16], f"and {len(told) - 16} more"] if told[16:] else told)


_COLOURED = re.compile(r"\x1b\[([0-9;]*)m(.*?)\x1b\[0?m", re.DOTALL)
_ANY_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LAST_ACTION = re.compile(r"^[ \t]*\([A-Za-z ]+\)[ \t]*\n?", re.MULTILINE)
_COLOUR_NAMES = {"31": "red", "32": "green", "33": "yellow", "34": "blue", "35": "magenta"}


def tell_ansi(text: str) -> str:
    """A rendering for terminals as plain text: a coloured background becomes brackets, other
    colours are named below (`Y is blue`). A line that only repeats the last action is left out.
    """
    named: dict[str, None] = {}

    def plain(match: re.Match[str]) -> str:
        codes, inner = match.group(1).split(";"), match.group(2)
        if any(re.fullmatch(r"4[0-7]", code) for code in codes):
            return f"[{inner.strip() or '_'}]"
        colour = next((_COLOUR_NAMES[code] for code in codes if code in _COLOUR_NAMES), "")
        if colour and inner.strip():
            named[f"{inner.strip()} is {colour}"] = None
        return inner

    shown = _ANY_CODE.sub("", _COLOURED.sub(plain, text))
    shown = _LAST_ACTION.sub("", shown).strip("\n")
    return "\n".join([shown, *([", ".join(named) + "."] if named else [])])


def unsupported(env: str, what: str, space: Space) -> ConfigError:
    """The error for a space that cannot be described."""
    return ConfigError(
        f"env {env}: its {what} are {space}, which cannot be described in words; write your own "
        "adapter and register it under a scheme (docs/how-to/foreign-envs.md)"
    )


def _key(name: str) -> str:
    """A name in lower case, without the spaces, quotes and stops that models put around it."""
    return " ".join(name.strip(" \t\n\"'`.,!").casefold().split())
