"""Fixed sequences, the oracle and its control, the pooled comparison and the table."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from searchrl_control.comparison.oracle import _redraw, measure_margin
from searchrl_control.comparison.paired import compare_each, compare_pooled
from searchrl_control.comparison.playing import Played, act_by_rule, act_fixed, play
from searchrl_control.comparison.sequences import (
    choose_best,
    list_sequences,
    name_of,
    play_sequences,
)
from searchrl_control.comparison.table import render, row_of
from searchrl_control.environment.actions import HEADS, PUBLISHED, SETS, WIDE, Action
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.features import LIST_FEATURES
from searchrl_control.environment.measures import ndcg

from searchrl import compare


@pytest.mark.parametrize(
    ("actions", "count"),
    [(PUBLISHED, 1 + 2 + 4 + 8 + 16), (WIDE, sum(6**n for n in range(5))),
     (HEADS, 1 + sum(6 * 7**n for n in range(4)))],
)  # fmt: skip
def test_every_sequence_is_there_once(actions: str, count: int) -> None:
    found = list_sequences(SETS[actions], 5)
    assert len(found) == len(set(found)) == count and found[0] == ()
    names = [name_of(SETS[actions], sequence) for sequence in found]
    assert len(set(names)) == count and not [n for n in names if "Terminate" in n or "Back" in n]


@pytest.mark.parametrize("actions", list(SETS))
def test_a_sequence_is_worth_what_an_episode_of_it_is(toy: dict[str, Any], actions: str) -> None:
    env = RetrievalControlEnv(**toy, actions=actions)
    sequences = list_sequences(env.actions, 3)
    values = play_sequences(env.world, "train", sequences)
    for sequence in sequences:
        played = play(env, "train", act_fixed(env.actions, sequence))
        assert {one.question: one.ndcg for one in played} == values[name_of(env.actions, sequence)]
        assert not any(one.num_illegal for one in played)


def test_the_best_sequence_is_chosen_on_pooled_training_questions() -> None:
    small = {"a": {"1": 1.0}, "b": {"1": 0.0}, "c": {"1": 1.0}}
    large = {"a": dict.fromkeys("1234", 0.1), "b": dict.fromkeys("1234", 0.5)}
    assert choose_best([small]) == "a"  # the first of equals
    assert choose_best([small, large]) == "b"  # questions count, not collections
    with pytest.raises(ValueError, match="no sequence"):
        choose_best([{"a": {"1": 1.0}}, {"b": {"1": 1.0}}])


def test_the_heuristic_looks_once_and_then_ends() -> None:
    actions = SETS[PUBLISHED]
    act = act_by_rule(actions)

    def look(step: int, share: float, gap: float) -> Action:
        told = np.zeros(len(LIST_FEATURES))
        told[LIST_FEATURES.index("share_three")] = share
        told[LIST_FEATURES.index("gap_last")] = gap
        return actions[act({"step": step, "list": told}, {})]

    assert look(0, 1, 1) is Action.SEARCH
    assert look(1, 0.4, 1) is Action.BROAD
    assert look(1, 0.6, 0.1) is Action.NARROW
    assert look(1, 0.6, 0.5) is look(2, 0.1, 0.1) is Action.TERMINATE


def lists_and_qrels(rng: Random, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    lists = {f"q{n}": [(f"d{place}", 1 - place / 30) for place in range(30)] for n in range(count)}
    qrels = {name: {f"d{place}": 1 for place in rng.sample(range(15), 3)} for name in lists}
    return lists, qrels


def test_an_oracle_over_lists_that_differ_by_luck_wins_nothing_beyond_its_control() -> None:
    lists, qrels = lists_and_qrels(Random(0), 150)
    rng = np.random.default_rng(5)
    values = {"best": {n: ndcg([d for d, _ in lists[n]], qrels[n]) for n in lists}}
    for number in range(5):
        values[f"noise{number}"] = {n: ndcg(_redraw(lists[n], 0.15, rng), qrels[n]) for n in lists}
    margin = measure_margin(values, "best", lists, qrels)
    assert margin.oracle - margin.best > 0.05  # it looks as if there were much to win
    assert abs(margin.learnable) < 0.02
    assert margin.control_spread == pytest.approx(margin.spread, rel=0.1)


def test_an_oracle_over_lists_that_truly_help_some_questions_wins_beyond_its_control() -> None:
    # Every list moves one fifth of the passages up by six ranks; of a question, all relevant
    # passages are in one of these fifths.
    base = [(f"d{place}", 1 - place / 30) for place in range(30)]
    orders = {
        f"kind{k}": sorted(range(30), key=lambda place, k=k: (place + 6 * (place % 5 != k), place))
        for k in range(5)
    }
    lists = {f"q{n}": base for n in range(100)}
    qrels = {f"q{n}": {f"d{n % 5 + 5 * step}": 1 for step in range(3)} for n in range(100)}
    values = {
        name: {n: ndcg([f"d{place}" for place in order], qrels[n]) for n in lists}
        for name, order in orders.items()
    }
    values["base"] = {n: ndcg([d for d, _ in base], qrels[n]) for n in lists}
    margin = measure_margin(values, "base", lists, qrels)
    assert margin.oracle > margin.best + 0.3
    assert margin.control_spread == pytest.approx(margin.spread, rel=0.05)
    assert margin.learnable > 0.1


def test_a_margin_needs_another_list_and_a_list_for_every_question() -> None:
    lists, qrels = lists_and_qrels(Random(0), 3)
    one = {"best": dict.fromkeys(lists, 0.5)}
    with pytest.raises(ValueError, match="at least two"):
        measure_margin(one, "best", lists, qrels)
    two = {**one, "other": dict.fromkeys(lists, 0.4)}
    with pytest.raises(ValueError, match="a list for every question"):
        measure_margin(two, "best", {}, qrels)


def two_policies(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = {}, {}
    for name, size, shift in (("big", 400, 0.0), ("small", 40, 0.3)):
        level = rng.random(size)
        second[name] = {f"q{n}": float(value) for n, value in enumerate(level)}
        first[name] = {
            f"q{n}": float(value + shift + 0.1 * rng.standard_normal())
            for n, value in enumerate(level)
        }
    return first, second


def test_pooled_interval_knows_no_spread_between_collections() -> None:
    first, second = two_policies(np.random.default_rng(0))
    told = compare_pooled(first, second)
    strata = [np.array([first[name][q] - second[name][q] for q in first[name]]) for name in first]
    total = sum(len(one) for one in strata)
    error = math.sqrt(sum(len(one) * one.var(ddof=1) for one in strata)) / total
    assert told["value"] == pytest.approx(sum(one.sum() for one in strata) / total)
    assert told["n"] == total
    assert told["high"] - told["low"] == pytest.approx(2 * 1.96 * error, rel=0.05)
    # All questions together have a spread that is none: that between collections.
    flat = [
        {f"{name}/{q}": v for name, of in one.items() for q, v in of.items()}
        for one in (first, second)
    ]
    loose = compare({"x": flat[0]}, {"x": flat[1]})["x"]
    assert told["high"] - told["low"] < 0.85 * (loose["high"] - loose["low"])


def test_equal_policies_have_no_interval() -> None:
    first, _ = two_policies(np.random.default_rng(2))
    told = compare_pooled(first, first)
    assert (told["value"], told["p"]) == (0, 1) and "low" not in told


def test_policies_on_different_questions_are_not_compared() -> None:
    first, second = two_policies(np.random.default_rng(2))
    del second["big"]["q0"]
    with pytest.raises(ValueError, match="same questions"):
        compare_pooled(first, second)
    with pytest.raises(ValueError, match="no question"):
        compare_each({}, {})


def test_the_table_by_hand() -> None:
    played = [
        Played("1", "toy", "easy", 1.0, ("Search", "Terminate")),
        Played("2", "toy", "hard", 0.0, ("Search", "Broad", "Broad", "Terminate"), 1),
        Played("1", "other", "easy", 0.5, ("Search", "Terminate")),
    ]
    row = row_of(played)
    assert row["ndcg"]["value"] == 0.5 and row["ndcg"]["n"] == 3 and row["illegal"] == 1
    assert row["steps"] == pytest.approx(8 / 3)
    assert row["actions"] == {"Search": 3 / 8, "Terminate": 3 / 8, "Broad": 2 / 8}
    assert row["levels"] == {"easy": {"ndcg": 0.75, "n": 2}, "hard": {"ndcg": 0.0, "n": 1}}
    lines = render({"agent": row}).splitlines()
    assert lines[0].startswith("| policy | nDCG@10 |") and len(lines) == 3
    assert "| 0.7500 (2) |  | 0.0000 (1) |" in lines[2] and "Broad 25%" in lines[2]
    with pytest.raises(ValueError, match="no episode"):
        row_of([])
