"""Algorithms of three papers, each a plugin file on public names alone, against tables by hand."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from searchrl.algorithms import StepScores, Trajectory, TurnStop
from searchrl.contracts import Task
from searchrl.core.group import TrainItem, WeightedScore
from searchrl.core.trajectory import Probe, Reading
from searchrl.testing import assert_conforms

PAPERS = Path(__file__).resolve().parent / "fixtures" / "papers"
DELTA = 1e-6


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, PAPERS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def played(name: str, reward: float | None, *shown: int, **more: Any) -> TrainItem:
    """An episode of a turn behind the prompt, and one behind each observation of one token."""
    trajectory = Trajectory(name, name[0])
    trajectory.append_prompt([1, 2])
    for number, token in enumerate((0, *shown)):
        if number:
            trajectory.append_env([token])
        trajectory.append_model([3, 4], [-1.0, -1.0], version=0, reason=TurnStop.EOS)
    return TrainItem(trajectory, reward, **more)


def step_of(*items: TrainItem) -> StepScores:
    return StepScores(
        [item.reward or 0.0 for item in items],
        [item.trajectory.group_id for item in items],
        [item.reward is not None for item in items],
        items,
        [item.turn_rewards for item in items],
    )


@pytest.mark.parametrize("name", ["gdpo", "gold_gain", "gigpo"])
def test_a_paper_is_a_file_of_sixty_lines_on_public_names(name: str) -> None:
    text = (PAPERS / f"{name}.py").read_text("utf-8")
    assert len(text.splitlines()) <= 60
    taken = {line.split()[1] for line in text.splitlines() if line.startswith("from searchrl")}
    assert taken == {"searchrl", "searchrl.algorithms"}
    if name != "gold_gain":  # which needs a run
        assert_conforms(str(PAPERS / f"{name}.py"))


def test_gdpo_normalises_each_component_and_then_the_step() -> None:
    def item(name: str, em: float, format_score: float) -> TrainItem:
        parts = {"em": WeightedScore(1.0, em), "format": WeightedScore(0.2, format_score)}
        return played(name, em + 0.2 * format_score, components=parts)

    items = [item("p0", 1, 1), item("p1", 0, 1), item("p2", 0, 0), item("q0", 1, 1)]
    items += [item("q1", 0, 1), played("q2", None)]
    # Group p: em 1 0 0 and format 1 1 0, both of deviation sqrt(2)/3; group q: em alone differs.
    of_p, of_q = 2**0.5 / 3 + DELTA, 0.5 + DELTA
    sums = [(2 / 3 + 0.2 / 3) / of_p, (-1 / 3 + 0.2 / 3) / of_p, (-1 / 3 - 0.4 / 3) / of_p]
    sums += [0.5 / of_q, -0.5 / of_q]
    deviation = (sum(one**2 for one in sums) / 5) ** 0.5 + DELTA
    expected = [*(one / deviation for one in sums), 0.0]
    assert load("gdpo").advantages(step_of(*items)) == pytest.approx(expected, abs=1e-9)


def test_gigpo_compares_turns_that_saw_the_same() -> None:
    items = [played("g0", 1.0, 7), played("g1", 0.0, 7), played("g2", 0.0, 8)]
    episode = [one / (2**0.5 / 3 + DELTA) for one in (2 / 3, -1 / 3, -1 / 3)]
    # Returns at half a discount: 0.5 1, 0 0, 0 0. The first turns saw the prompt; of the second
    # ones two saw 7, and one alone saw 8.
    first = [one / (2**0.5 / 6 + DELTA) for one in (1 / 3, -1 / 6, -1 / 6)]
    second = [0.5 / (0.5 + DELTA), -0.5 / (0.5 + DELTA), 0.0]
    columns = load("gigpo").advantages(step_of(*items), gamma=0.5, weight=2.0)
    for whole, one, other, column in zip(episode, first, second, columns, strict=True):
        assert column.values == pytest.approx([whole + 2 * one, whole + 2 * other], abs=1e-9)


def test_the_gain_of_a_turn_is_that_of_the_log_prob_of_the_gold_answer() -> None:
    task = Task("t", "train", 0, "Who?", ("Ada",))
    items = [played("g0", 1.0, 7, task=task), played("g1", None, task=task), played("g2", 0.0)]
    nats = {2: (-3.0, -1.0), 4: (-1.5, -1.0), 7: (-2.0, -1.0)}
    asked: list[Probe] = []

    def read(probes: list[Probe]) -> list[Reading]:
        asked.extend(probes)
        return [Reading(nats[probe.stop], (0.0, 0.0)) for probe in probes]

    algorithm = load("gold_gain").make()
    algorithm.hooks.begin(SimpleNamespace(read=read))
    columns = algorithm.advantages(step_of(*items))
    assert [list(one.values) for one in columns] == [[0.75, -0.25], [0.0], [0.0]]
    assert {probe.text for probe in asked} == {"<answer> Ada </answer>"}
