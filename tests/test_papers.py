"""The algorithm of a paper as a user writes it: a file on public names, against a table by hand."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

from searchrl.algorithms import StepScores, Trajectory, TurnStop
from searchrl.contracts import Task
from searchrl.core.group import TrainItem
from searchrl.core.trajectory import Probe, Reading

PAPER = Path(__file__).resolve().parent / "fixtures" / "papers" / "gold_gain.py"


def played(name: str, reward: float | None, num_turns: int, task: Task | None = None) -> TrainItem:
    """An episode of a turn behind the prompt, and one behind each observation of one token."""
    trajectory = Trajectory(name, name[0])
    trajectory.append_prompt([1, 2])
    for number in range(num_turns):
        if number:
            trajectory.append_env([7])
        trajectory.append_model([3, 4], [-1.0, -1.0], version=0, reason=TurnStop.EOS)
    return TrainItem(trajectory, reward, task=task)


def test_the_gain_of_a_turn_is_that_of_the_log_prob_of_the_gold_answer() -> None:
    text = PAPER.read_text("utf-8")
    assert len(text.splitlines()) <= 60
    taken = {line.split()[1] for line in text.splitlines() if line.startswith("from searchrl")}
    assert taken == {"searchrl", "searchrl.algorithms"}
    spec = importlib.util.spec_from_file_location("gold_gain", PAPER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task = Task("t", "train", 0, "Who?", ("Ada",))
    items = [played("g0", 1.0, 2, task), played("g1", None, 1, task), played("g2", 0.0, 1)]
    nats = {2: (-3.0, -1.0), 4: (-1.5, -1.0), 7: (-2.0, -1.0)}
    asked: list[Probe] = []

    def read(probes: list[Probe]) -> list[Reading]:
        asked.extend(probes)
        return [Reading(nats[probe.stop], (0.0, 0.0)) for probe in probes]

    algorithm = module.make()
    algorithm.hooks.begin(SimpleNamespace(read=read))
    rewards = [item.reward or 0.0 for item in items]
    step = StepScores(rewards, ["g"] * 3, [item.reward is not None for item in items], items)
    columns = algorithm.advantages(step)
    assert [list(one.values) for one in columns] == [[0.75, -0.25], [0.0], [0.0]]
    assert {probe.text for probe in asked} == {"<answer> Ada </answer>"}
