"""Criteria of environments of choices, E23 and E24: what is shown, and what any number does.

Owns what concerns actions that are numbers. The other criteria of environments hold for them, too,
played in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from gymnasium.spaces import Discrete

from searchrl.contracts import CHOICE_TURNS
from searchrl.envs.choices import find_space, take_view
from searchrl.errors import ConfigError, EnvironmentFailure
from searchrl.testing.criteria import NotApplicable, Problem, criterion
from searchrl.testing.kinds.envs import play as env_play
from searchrl.testing.kit.subject import Subject

_NUM_STEPS = 200
"""Steps of the episodes that are played at random."""


def _make(subject: Subject) -> env_play.Env:
    if subject.entry.turns != CHOICE_TURNS:
        raise NotApplicable("its turns are text: it is not registered with turns='choice'")
    return env_play.make_inner(subject)


@criterion("E23")
def _shows_numbers(subject: Subject) -> Iterator[Problem]:
    env = _make(subject)
    try:
        find_space(env, subject.entry.title)
    except ConfigError as error:
        yield Problem(str(error), env_play.find_own(env, "__init__"))
        return
    rng = Random(0)
    for options in env_play.find_probes(env):
        method = "reset"
        try:
            view = take_view(env, *env_play.reset(env, options), method)
            for _ in range(_NUM_STEPS):
                method = "step"
                legal = [number for number, is_legal in enumerate(view.legal) if is_legal]
                observation, _, is_over, is_cut, info = env.step(rng.choice(legal))
                if is_over or is_cut:
                    break
                view = take_view(env, observation, info, method)
        except EnvironmentFailure as error:
            yield Problem(f"for {options}, {error}", env_play.find_own(env, method))
            return


@criterion("E24")
def _takes_any_number(subject: Subject) -> Iterator[Problem]:
    env = _make(subject)
    space: Any = env.action_space
    if not isinstance(space, Discrete):
        return  # E23 says so
    rng = Random(0)
    for options in env_play.find_probes(env):
        env_play.reset(env, options)
        for _ in range(_NUM_STEPS):
            number = int(space.start) + rng.randrange(int(space.n))
            try:
                _, _, is_over, is_cut, _ = env.step(number)
            except (Exception, SystemExit) as error:
                yield Problem(f"step({number}) raised {type(error).__name__}: {error}", error)
                return
            if is_over or is_cut:
                break
