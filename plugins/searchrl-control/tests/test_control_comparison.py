"""Fixed sequences, the oracle and its control, the pooled comparison and the table."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from control_toy import act_fixed, play
from searchrl_control.commands.compare import render, show_difference
from searchrl_control.comparison.sequences import (
    Case,
    choose_kinds,
    describe,
    list_sequences,
    measure_margin,
    name_of,
    play_sequences,
    redraw,
)
from searchrl_control.comparison.study import (
    Played,
    compare_played,
    row_of,
)
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.measures import ndcg
from searchrl_control.environment.settings import HEADS, PUBLISHED, SETS


@pytest.mark.parametrize(
    ("actions", "count"),
    [(PUBLISHED, 1 + 2 + 4 + 8 + 16), (HEADS, 1 + sum(6 * 7**n for n in range(4)))],
)
def test_every_sequence_is_there_once(actions: str, count: int) -> None:
    found = list_sequences(SETS[actions], 5)
    assert len(found) == len(set(found)) == count and found[0] == ()
    names = [name_of(SETS[actions], sequence) for sequence in found]
    assert len(set(names)) == count and not [name for name in names if "Terminate" in name]


@pytest.mark.parametrize("actions", list(SETS))
def test_a_sequence_is_worth_what_an_episode_of_it_is(toy: dict[str, Any], actions: str) -> None:
    env = RetrievalControlEnv(**toy, actions=actions)
    sequences = list_sequences(env.actions, 3)
    values = play_sequences(env.world, "test", sequences)
    for sequence in sequences:
        played = play(env, "test", act_fixed(env, sequence))
        of = values[name_of(env.actions, sequence)]
        assert {question: worth for question, worth, _ in played} == of


def test_the_best_sequence_is_chosen_on_pooled_training_questions() -> None:
    small = {"a": {"1": 1.0}, "b": {"1": 0.0}, "c": {"1": 1.0}, "Search": {"1": 0.0}}
    large = {"a": dict.fromkeys("1234", 0.1), "b": dict.fromkeys("1234", 0.5)}
    large["Search"] = dict.fromkeys("1234", 0.0)
    found = describe(
        {"small": {name: small[name] for name in ("a", "b", "Search")}, "large": large}
    )["best"]
    assert found["small"]["sequence"] == "a" and found["pooled"]["sequence"] == "b"
    assert describe({"small": small})["best"]["pooled"]["sequence"] == "a"  # the first of equals


def test_kinds_differ_in_length_or_in_their_last_action() -> None:
    means = {"Search, Hop": 0.5, "Search, Fuse, Hop": 0.6, "Search, Hop, Hop": 0.4, "Search": 0.3}
    assert choose_kinds(means) == ["Search, Fuse, Hop", "Search, Hop", "Search"]
    assert len(choose_kinds({f"Search, {letter}": 0.5 for letter in "abcdefgh"})) == 6


def test_an_oracle_over_lists_that_differ_by_luck_wins_nothing_beyond_its_control() -> None:
    draws = Random(0)
    lists = {f"q{n}": [(f"d{place}", 1 - place / 30) for place in range(30)] for n in range(150)}
    qrels = {name: {f"d{place}": 1 for place in draws.sample(range(15), 3)} for name in lists}
    rng = np.random.default_rng(5)
    cases = []
    for name, listed in lists.items():
        orders = [[d for d, _ in listed], *(redraw(listed, 0.15, rng) for _ in range(5))]
        cases.append(Case([ndcg(one, qrels[name]) for one in orders], listed, qrels[name]))
    margin = measure_margin(cases)
    assert margin["best"] == pytest.approx(np.mean([case.values[0] for case in cases]))
    assert margin["oracle"] == pytest.approx(np.mean([max(case.values) for case in cases]))
    assert margin["oracle"] - margin["best"] > 0.05  # it looks as if there were much to win
    assert abs(margin["learnable"]) < 0.02
    assert margin["control_spread"] == pytest.approx(margin["spread"], rel=0.1)


def test_pooled_interval_knows_no_spread_between_collections() -> None:
    rng, first, second = np.random.default_rng(0), [], []
    for name, size, shift in (("big", 400, 0.0), ("small", 40, 0.3)):
        for n, value in enumerate(rng.random(size)):
            worth = float(value + shift + 0.1 * rng.standard_normal())
            first.append(Played(f"{name}/q{n}", name, "easy", worth, ()))
            second.append(Played(f"{name}/q{n}", name, "easy", float(value), ("Search",)))
    found = compare_played([first], second)
    told = found["pooled"]
    minus = [(a.collection, a.ndcg - b.ndcg) for a, b in zip(first, second, strict=True)]
    strata = [np.array([d for c, d in minus if c == name]) for name in ("big", "small")]
    total = sum(len(one) for one in strata)
    error = math.sqrt(sum(len(one) * one.var(ddof=1) for one in strata)) / total
    assert told["value"] == pytest.approx(sum(one.sum() for one in strata) / total)
    assert told["n"] == total and found["small"]["n"] == 40
    assert found["small"]["value"] == pytest.approx(strata[1].mean())
    assert told["high"] - told["low"] == pytest.approx(2 * 1.96 * error, rel=0.05)


def test_an_interval_over_questions_and_seeds_by_hand() -> None:
    """Two seeds that win .1 and .3: their mean has the error .1, and t(1) at .975 is 12.7062."""
    draws = Random(0)
    other = [Played(f"toy/q{n}", "toy", ("easy", "hard")[n % 2], 0.1, ("Hop",)) for n in range(20)]
    seeds = [
        [one._replace(ndcg=win + by, actions=()) for one, by in zip(other, noises, strict=True)]
        for noises in [[draws.uniform(0, 0.2) for _ in other]]
        for win in (0.1, 0.3)
    ]
    mean = [one._replace(ndcg=one.ndcg + 0.1) for one in seeds[0]]
    for part in ("pooled", "toy", "easy questions", "hard questions"):
        one, both = (compare_played(of, other)[part] for of in ([mean], seeds))
        assert both["value"] == pytest.approx(one["value"]) and both["n"] == one["n"]
        for end in ("low", "high"):
            half = math.hypot(one[end] - one["value"], 1.27062)
            assert abs(both[end] - both["value"]) == pytest.approx(half, abs=1e-5)


def test_policies_that_do_the_same_have_a_difference_without_an_interval() -> None:
    """Ten questions that both solve, each with nDCG 1: it was +0.0000 [-0.2310, +0.2310]."""
    easy = [Played(f"toy/q{n}", "toy", "easy", 1.0, ("Search", "Narrow")) for n in range(10)]
    hard = [one._replace(question=f"{one.question}h", level="hard", ndcg=0.5) for one in easy]
    changed = [*easy, *(one._replace(actions=(), ndcg=n / 10) for n, one in enumerate(hard))]
    for seeds in ([changed], [changed, easy + hard]):
        found = compare_played(seeds, easy + hard)
        same, apart = found["easy questions"], found["pooled"]
        assert (same["value"], same["n"], same["p"]) == (0.0, 10, 1.0) and "low" not in same
        assert show_difference(same) == "the same on all questions"
        assert apart["low"] < apart["value"] < apart["high"]


def test_the_table_by_hand() -> None:
    played = [
        Played("toy/1", "toy", "easy", 1.0, ("Search", "Terminate")),
        Played("toy/2", "toy", "hard", 0.0, ("Search", "Broad", "Broad", "Terminate")),
        Played("other/1", "other", "easy", 0.5, ("Search", "Terminate")),
    ]
    row = row_of(played)
    assert row["ndcg"]["value"] == 0.5 and row["ndcg"]["n"] == 3
    assert row["steps"] == row_of(played * 2)["steps"] == pytest.approx(8 / 3)
    assert row["actions"] == {"Search": 3 / 8, "Terminate": 3 / 8, "Broad": 2 / 8}
    assert row["levels"] == {"easy": {"ndcg": 0.75, "n": 2}, "hard": {"ndcg": 0.0, "n": 1}}
    lines = render({"agent": row}).splitlines()
    assert lines[0].startswith("| policy | nDCG@10 |") and len(lines) == 3
    assert "| 0.7500 (2) |  | 0.0000 (1) |" in lines[2] and "Broad 25%" in lines[2]
