"""The main command with nothing changed: what the README promises, and its controls (slow).

What the first page shows, and controls: the model stops answering from memory, it searches again
in other words, it does better than a careful word search, the reward is what teaches it, and on
shuffled rewards or with a learning rate of nothing it gains nothing.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

import searchrl
from searchrl.contracts import Metric
from searchrl.envs.regulations.questions import IN_OTHER_WORDS

KINDS = ("lookup", "two_hop", "not_regulated")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_main_command_reaches_its_figures_and_reads(tmp_path: Path, seed: int) -> None:
    run = train(tmp_path / "run", seed=seed)
    before, after = (run.summary[name] for name in ("before", "after"))
    assert before["em"]["n"] >= 256 and value(before, "em") <= 0.25
    assert value(before, "searched") <= 0.35
    assert value(after, "em") >= 0.80 and value(after, "em_forced") >= 0.80
    assert value(after, "em/unseen_wording") >= 0.72
    assert value(after, "searched") >= 0.96 and value(after, "format") >= 0.95
    for kind in KINDS:
        assert value(after, f"em/{kind}") >= 0.80, kind
    # No demonstration showed that a search in other words pays.
    for kind in IN_OTHER_WORDS:
        assert value(before, f"em/{kind}") <= 0.1 and value(after, f"em/{kind}") >= 0.5, kind
    assert after["em_gain"]["low"] >= 0.1
    heuristic = searchrl.evaluate({"env": "regulations", "policy": "scripted:two_search_regex"})
    assert value(after, "em") >= value(heuristic.metrics, "em") + 0.03
    for retriever, most in (("random", 0.20), ("empty", 0.10)):
        blind = searchrl.evaluate(
            {"env": "regulations", "model": str(run.path), "retriever": retriever}
        )
        assert regulated_em(blind.metrics) <= most, retriever


def test_format_alone_teaches_no_answers(tmp_path: Path) -> None:
    run = train(tmp_path / "run", reward="format")
    assert value(run.summary["after"], "em") <= 0.50


def test_shuffled_rewards_teach_nothing(tmp_path: Path) -> None:
    run = train(tmp_path / "run", algorithm={"control": "shuffled"})
    assert run.summary["after"]["em_gain"]["low"] <= 0


def test_learning_rate_of_nothing_moves_nothing(tmp_path: Path) -> None:
    run = train(tmp_path / "run", optim={"lr": 0.0})
    before, after = (run.summary[name] for name in ("before", "after"))
    for name in before:
        assert before[name]["low"] <= value(after, name) <= before[name]["high"], name


def train(folder: Path, **changes: object) -> searchrl.Run:
    return searchrl.train(
        {"env": "regulations", "reward": "format+em", "run_dir": str(folder), **changes}
    )


def value(metrics: Mapping[str, Metric], name: str) -> float:
    return metrics[name]["value"]


def regulated_em(metrics: Mapping[str, Metric]) -> float:
    kinds = [metrics[f"em/{kind}"] for kind in KINDS if kind != "not_regulated"]
    return sum(m["value"] * m["n"] for m in kinds) / sum(m["n"] for m in kinds)
