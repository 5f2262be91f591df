"""Spaces in words: how discrete actions are named and read, and how observations are described.

Owns `Actions` (names, parser and samples of an action space), the text of an observation, terminal
colours as text, and the form of `searchrl/assets/games.json`: the goals and action names of
Gymnasium's own text games, from its documentation. Steps no environment and knows no protocol.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from pydantic import with_config

from searchrl.envs.text_space import TextSpace
from searchrl.envs.word_lists import ASSETS, EXACT, load_word_list
from searchrl.errors import ConfigError

Space = gymnasium.Space[Any]


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class Game:
    """What is known about an environment: its goal, its actions, the parts of its observations."""

    goal: str
    actions: tuple[str, ...]
    parts: tuple[str, ...] = ()


@cache
def load_games() -> dict[str, Game]:
    """Gymnasium's text games by the name in their id (`FrozenLake` of `FrozenLake-v1`)."""
    return load_word_list(dict[str, Game], ASSETS / "games.json")


class Actions:
    """The actions of an environment in words.

    Args:
        space: text, `Discrete`, `MultiDiscrete`, `MultiBinary` or a `Tuple` of `Discrete`.
        names: names of the actions of a `Discrete` space in order; without them, numbers.
        env: the environment's name in errors.

    Raises:
        ConfigError: another kind of space, or names that do not fit it.
    """

    def __init__(self, space: Space, names: Sequence[str] | None, env: str) -> None:
        self.space = space
        self._parts = parts_of(space)
        if self._parts is None and not is_text(space):
            raise unsupported(env, "actions", space)
        # The numbers of a single part, whose actions can have names and be masked.
        self._single = self._parts[0] if self._parts and len(self._parts) == 1 else None
        self._names = [str(name) for name in (self._single or () if names is None else names)]
        count = len(self._single or ())
        is_named = len(self._names) == len(set(map(_key, self._names))) == count > 0
        if names is not None and not is_named:
            raise ConfigError(
                f"env {env}: action_names must be different names, one per action of a Discrete "
                f"space; the space is {space}, and they are {self._names}"
            )
        self._numbers = dict(zip(map(_key, self._names), self._single or (), strict=True))

    def listed(self, mask: Any = None) -> str:
        """The legal actions as a sentence's end: `left, down, right, up`."""
        if self._parts is None:
            return "any text that is short enough"
        if self._single is None:
            ranges = ", ".join(f"{part[0]} to {part[-1]}" for part in self._parts)
            example = ", ".join(str(part[0]) for part in self._parts)
            return f"{len(self._parts)} numbers, such as {example}: {ranges}"
        names = [self._names[place] for place in self._legal(mask)]
        if len(names) > 40:
            return f"{names[0]}, {names[1]}, …, {names[-1]} ({len(names)} of them)"
        return ", ".join(names)

    def parse(self, text: str, mask: Any = None) -> Any:
        """The legal action that `text` names (name or number, any case); None if there is none.

        The numbers of an action with several parts are separated by commas or spaces.
        """
        if self._parts is None:
            return text if self.space.contains(text) else None
        if self._single is not None:
            number = self._numbers.get(_key(text), _read_number(text, self._single))
            is_legal = number is not None and number - self._single[0] in self._legal(mask)
            return number if is_legal else None
        words = [word for word in re.split(r"[\s,;]+", text.strip(" ()[]")) if word]
        if len(words) != len(self._parts):
            return None
        numbers = [_read_number(w, part) for w, part in zip(words, self._parts, strict=True)]
        if None in numbers:
            return None
        if isinstance(self.space, Tuple):
            return tuple(numbers)
        return np.array(numbers, dtype=self.space.dtype)

    def sample(self, rng: Random, mask: Any = None) -> str:
        """A legal action in words."""
        if self._parts is None:
            self.space.seed(rng.getrandbits(31))
            return str(self.space.sample())
        if self._single is not None:
            return self._names[rng.choice(self._legal(mask))]
        return ", ".join(str(rng.choice(part)) for part in self._parts)

    def _legal(self, mask: Any) -> list[int]:
        """Positions of the legal actions; a mask that allows nothing is ignored."""
        if mask is None:
            return list(range(len(self._names)))
        return [int(i) for i in np.flatnonzero(np.asarray(mask))] or self._legal(None)


def is_text(space: Space) -> bool:
    """Whether a space holds text: Gymnasium's `Text` or our `TextSpace`."""
    return isinstance(space, Text | TextSpace)


def parts_of(space: Space) -> list[range] | None:
    """The numbers of each discrete space that a space consists of; None for other spaces."""
    if isinstance(space, Discrete):
        return [range(int(space.start), int(space.start) + int(space.n))]
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1:
        starts = getattr(space, "start", np.zeros_like(space.nvec))
        return [range(int(s), int(s) + int(n)) for n, s in zip(space.nvec, starts, strict=True)]
    if isinstance(space, MultiBinary) and len(space.shape) == 1:
        return [range(2)] * space.shape[0]
    if isinstance(space, Tuple) and all(isinstance(part, Discrete) for part in space):
        return [part for inner in space for part in parts_of(inner) or ()]
    return None


def has_measures(space: Space) -> bool:
    """Whether a space holds measured numbers: `Box`, or a `Dict` of `Box` and `Discrete`."""
    if isinstance(space, Dict):
        return all(isinstance(part, Box | Discrete) for part in space.values())
    return isinstance(space, Box)


def tell_measures(space: Space, value: Any) -> str:
    """An observation of measured numbers in words: `step 2`, `gaps 0.31, 0.02`, one part a line."""
    if isinstance(space, Dict):
        return "\n".join(f"{key} {tell_measures(space[key], value[key])}" for key in space)
    numbers = np.asarray(value).flatten().tolist()
    told = [f"{number:.3g}" for number in numbers[:16]]
    more = len(numbers) - len(told)
    return ", ".join([*told, f"and {more} more"] if more else told)


def tell_numbers(space: Space, value: Any, names: Sequence[str] = ()) -> str:
    """An observation of a space of numbers in words: `5`, `your sum 14, dealer shows 10`."""
    if has_measures(space):
        return tell_measures(space, value)
    values = [value] if isinstance(space, Discrete) else list(value)
    labels = names if len(names) == len(values) else [""] * len(values)
    pairs = zip(labels, values, strict=True)
    return ", ".join(f"{label} {int(number)}".strip() for label, number in pairs)


_COLOURED = re.compile(r"\x1b\[([0-9;]*)m(.*?)\x1b\[0?m", re.DOTALL)
_ANY_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LAST_ACTION = re.compile(r"^[ \t]*\([A-Za-z ]+\)[ \t]*\n?", re.MULTILINE)
_COLOUR_NAMES = {"31": "red", "32": "green", "33": "yellow", "34": "blue", "35": "magenta"}


def tell_ansi(text: str) -> str:
    """A rendering for terminals as plain text; what the colours mean is kept.

    Text with a coloured background (where the agent is) is put in brackets. Other colours are
    named below: `Y is blue`. A line that only repeats the last action is left out.
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
        "adapter and register it under a scheme (docs/foreign-envs.md)"
    )


def _read_number(text: str, part: range) -> int | None:
    """The number in `text` if it is one of `part`; None for anything else."""
    if not re.fullmatch(r"\s*-?\d{1,18}\s*", text):
        return None
    return int(text) if int(text) in part else None


def _key(name: str) -> str:
    """A name in lower case, without the spaces, quotes and stops that models put around it."""
    return " ".join(name.strip(" \t\n\"'`.,!").casefold().split())
