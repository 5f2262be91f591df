"""Spaces in words: names, numbers, masks and renderings."""

from random import Random
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Text, Tuple
from hypothesis import given
from hypothesis import strategies as st

from searchrl.envs.describe import Actions, load_games, tell_ansi, tell_numbers
from searchrl.envs.text_space import TextSpace
from searchrl.errors import ConfigError

MOVES = Actions(Discrete(4), ["left", "down", "right", "Turn Back"], "lake")


class TestActions:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("left", 0),
            (" RIGHT ", 2),
            ("turn  back", 3),
            ("3", 3),
            ("4", None),
            ("leftt", None),
            ("٣" * 40, None),
        ],
    )
    def test_an_action_is_named_or_numbered_in_any_case(self, text: str, number: int | None):
        assert MOVES.parse(text) == number

    def test_actions_without_names_are_numbers_from_the_start_of_the_space(self):
        actions = Actions(Discrete(3, start=5), None, "e")
        assert actions.listed() == "5, 6, 7"
        assert [actions.parse(text) for text in ("4", "5", "7", "8")] == [None, 5, 7, None]

    def test_what_a_mask_forbids_is_not_drawn(self):
        mask = np.array([0, 1, 0, 1], dtype=np.int8)
        drawn = {MOVES.sample(Random(i), mask) for i in range(30)}
        assert drawn == {"down", "Turn Back"}

    @pytest.mark.parametrize("names", [["a"], ["a", "A"]])
    def test_names_must_fit_the_space(self, names: list[str]):
        with pytest.raises(ConfigError, match="env lake: action_names must be different names"):
            Actions(Discrete(2), names, "lake")

    @pytest.mark.parametrize("space", [Discrete(3, start=-1), TextSpace(8, turns=("hello",))])
    def test_what_is_drawn_can_be_read_and_lies_in_the_space(self, space: Any):
        actions = Actions(space, None, "e")
        drawn = [actions.sample(Random(i)) for i in range(20)]
        assert all(space.contains(actions.parse(text)) for text in drawn)
        assert drawn == [actions.sample(Random(i)) for i in range(20)]

    @given(st.text())
    def test_reading_is_total(self, text: str):
        for space in (Discrete(4), Text(5)):
            found = Actions(space, None, "e").parse(text)
            assert found is None or space.contains(found)

    @pytest.mark.parametrize("space", [Box(0, 1, (2,)), MultiDiscrete([2, 2])])
    def test_other_spaces_are_refused_with_those_that_are_not(self, space: Any):
        with pytest.raises(ConfigError, match="env e: its actions are"):
            Actions(space, None, "e")


class TestObservations:
    def test_numbers(self):
        assert tell_numbers(Discrete(16), np.int64(5)) == "5"
        assert tell_numbers(MultiDiscrete([3, 3]), np.array([1, 2])) == "1, 2"
        hand = Tuple((Discrete(32), Discrete(11), Discrete(2)))
        parts = load_games()["Blackjack"].parts
        assert (
            tell_numbers(hand, (14, 10, 0), parts) == "your sum 14, dealer shows 10, usable ace 0"
        )

    def test_what_colours_say_is_kept(self):
        lake = "  (Right)\nS\x1b[41mF\x1b[0mFF\nFHFH\n"
        assert tell_ansi(lake) == "S[F]FF\nFHFH"
        taxi = "|\x1b[35mR\x1b[0m: |\n|\x1b[34;1mY\x1b[0m|\x1b[43m \x1b[0m|\n  (South)\n"
        assert tell_ansi(taxi) == "|R: |\n|Y|[_]|\nR is magenta, Y is blue."
        assert tell_ansi("\x1b[2J\x1b[1mbold\x1b[0m and \x1b[31mopen") == "bold and open"


@pytest.mark.parametrize("name", sorted(load_games()))
def test_known_games_have_as_many_names_as_actions(name: str):
    ids = [s.id for s in gymnasium.registry.values() if s.name == name and s.namespace is None]
    assert ids, f"Gymnasium has no {name}"
    env = gymnasium.make(sorted(ids)[-1])
    assert env.action_space == Discrete(len(load_games()[name].actions))
    observed = tell_numbers(env.observation_space, env.observation_space.sample()).split(", ")
    assert len(load_games()[name].parts) in (0, len(observed))


@pytest.mark.parametrize(
    ("env_id", "moves", "cells"),
    [
        # Where the documented action leads, by the environment's own number.
        ("FrozenLake-v1", {"right": 1, "down": 4, "left": 0, "up": 0}, 16),
        ("CliffWalking-v1", {"up": 24, "left": 36, "down": 36}, 48),
    ],
)
def test_names_mean_what_the_game_does(env_id: str, moves: dict[str, int], cells: int):
    settings = {"is_slippery": False}
    env = gymnasium.make(env_id, **settings)
    names = load_games()[env_id.partition("-")[0]].actions
    for name, cell in moves.items():
        env.reset(seed=0)
        assert env.step(names.index(name))[0] == cell
    assert env.observation_space == Discrete(cells)
