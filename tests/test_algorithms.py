"""Algorithms by name: their numbers, two steps of each, dynamic sampling, overlong penalty."""

import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch
from train_toy import Crash, PowerCut, assert_same_run, settings, weights_of

from searchrl.algorithms.record import Algorithm, Ask
from searchrl.config.sections import AlgorithmConfig
from searchrl.core.loss import LossSettings, loss_columns
from searchrl.engine.metrics.metrics import Metrics
from searchrl.errors import ConfigError, FailureLimitError
from searchrl.plugins import load_plugins
from searchrl.programs.train import train
from searchrl.run_folder import Run
from searchrl.screen.observer import Observer

registry = load_plugins(entry_points=False)
pytestmark = pytest.mark.usefixtures("threads_restored")


def make(name: str, **own: Any) -> Algorithm:
    return registry.get("algorithm", name).make(**own)


OWN_NUMBERS = {
    "grpo": (0.2, 0.2, 1e-3, "sequence-mean"),
    "grpo_turns": (0.2, 0.2, 1e-3, "sequence-mean"),
    "dr_grpo": (0.2, 0.2, 1e-3, "constant"),
    "rloo": (0.2, 0.2, 1e-3, "token-mean"),
    "reinforce_pp": (0.2, 0.2, 1e-3, "sequence-mean"),
    "dapo": (0.2, 0.28, 0.0, "token-mean"),
    "gspo": (3e-4, 4e-4, 0.0, "sequence-mean"),
    "cispo": (1.0, 4.0, 0.0, "token-mean"),
    "tis": (0.2, 0.2, 1e-3, "sequence-mean"),
    "masked_tis": (0.2, 0.2, 1e-3, "sequence-mean"),
    "llds": (0.2, 0.2, 1e-3, "sequence-mean"),
}


def test_every_algorithm_uses_the_numbers_of_its_paper_where_a_run_sets_none() -> None:
    assert OWN_NUMBERS.keys() == set(registry.names("algorithm"))
    for name, numbers in OWN_NUMBERS.items():
        assert astuple(make(name).resolve(AlgorithmConfig(name=name))) == numbers
        assert make(name).name == name


@pytest.mark.parametrize("name", OWN_NUMBERS)
def test_what_a_run_sets_wins_zero_included(name: str) -> None:
    mine = AlgorithmConfig(clip_low=0.1, clip_high=0.3, beta=0.0, reduction="constant")
    assert astuple(make(name).resolve(mine)) == (0.1, 0.3, 0.0, "constant")
    one = make(name).resolve(AlgorithmConfig(beta=0.5))
    assert astuple(one) == (*OWN_NUMBERS[name][:2], 0.5, OWN_NUMBERS[name][3])


def test_which_algorithms_ask_the_trainer_for_the_old_log_probs() -> None:
    asking = {name for name in OWN_NUMBERS if Ask.TRAINER_LOGPS in make(name).asks}
    assert asking == {"gspo", "tis", "masked_tis", "llds"}


def test_settings_reach_the_loss() -> None:
    """One token, sampler at a third of the trainer's probability, fallen to 0.9; hand numbers."""
    columns = loss_columns(
        torch.tensor([0.9]).log(),
        torch.zeros(1),
        torch.ones(1),
        torch.ones(1),
        sampler_logp_T=-torch.tensor([3.0]).log(),
        segment_T=torch.zeros(1, dtype=torch.long),
    )
    for name, own, expected in (
        ("tis", {}, -0.9 * 2),
        ("tis", {"cap": 2.5}, -0.9 * 2.5),
        ("masked_tis", {}, -0.9 * 3),
        ("masked_tis", {"high": 2.9}, 0.0),
        ("llds", {}, -0.9 + 0.1 * 0.1053605),
        ("llds", {"coefficient": 0.2}, -0.9 + 0.2 * 0.1053605),
    ):
        loss, _ = make(name, **own).loss(columns, LossSettings())
        assert loss.item() == pytest.approx(expected, abs=1e-6), (name, own)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("dapo", {"max_refills": -1}),
        ("dapo", {"overlong_penalty": -1.0}),
        ("tis", {"cap": 0.5}),
        ("masked_tis", {"high": 0.5}),
        ("llds", {"coefficient": -0.1}),
        ("llds", {"lambda": 0.1}),
    ],
)
def test_settings_out_of_range_are_refused_before_anything_starts(name: str, wrong: dict[str, Any]):
    with pytest.raises(ConfigError, match=f"algorithm '{name}'.*{next(iter(wrong))}"):
        registry.get("algorithm", name).ensure_settings(wrong)


class Noting(Observer):
    def __init__(self) -> None:
        self.steps: list[Metrics] = []
        self.plans: list[str] = []

    def plan(self, config: Any, facts: Any) -> None:
        self.plans.append(facts["algorithm"])

    def step(self, step: int, max_steps: int, metrics: Metrics) -> None:
        self.steps.append(metrics)


def short(folder: Path, run_dir: Path, name: str, **own: Any) -> dict[str, Any]:
    config = settings(folder, run_dir, max_steps=2, eval={"every": 0, "num_tasks": 1})
    config["algorithm"] = {"name": name, "beta": None, "settings": own}
    return config


@pytest.mark.parametrize("name", ["dr_grpo", "masked_tis", "llds"])
def test_two_steps_by_name(name: str, micro_model: Path, tmp_path: Path) -> None:
    observer = Noting()
    run = train(short(micro_model, tmp_path / "run", name), observer=observer)
    before, after = weights_of(micro_model), weights_of(run.path / "policy")
    assert any(not torch.equal(before[key], after[key]) for key in before)
    assert len(observer.steps) == 2
    for metrics in observer.steps:
        assert metrics["num_nonfinite"]["value"] == metrics["skipped_steps"]["value"] == 0
        # The first update of a step: ratios are 1 up to rounding, whatever is done with them.
        if metrics["num_rollouts"]["value"]:
            assert metrics["ratio_mean"]["value"] == pytest.approx(1, abs=1e-4)
            is_asking = Ask.TRAINER_LOGPS in make(name).asks
            assert ("sampler_ratio_mean" in metrics) == is_asking, "else 1 by definition"
            if is_asking:
                assert metrics["sampler_ratio_mean"]["value"] == pytest.approx(1, abs=1e-4)
    # The numbers used are on the console and in the run folder, though the run set none.
    described = make(name).resolve(AlgorithmConfig()).describe()
    assert described in observer.plans[0] and "None" not in observer.plans[0]
    provenance = json.loads((run.path / "provenance.json").read_text())
    keys = ("name", "clip_low", "clip_high", "beta", "reduction")
    assert provenance["algorithm"] == dict(zip(keys, (name, *OWN_NUMBERS[name]), strict=True))


@pytest.fixture(scope="module")
def dapo_run(micro_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(dapo_settings(micro_model, tmp_path_factory.mktemp("dapo") / "run"))


def dapo_settings(folder: Path, run_dir: Path) -> dict[str, Any]:
    own = {"max_refills": 2, "overlong_limit": 30, "overlong_buffer": 20}
    config = settings(folder, run_dir)
    config["algorithm"] = {"name": "dapo", "settings": own}
    return config


@pytest.mark.thorough
@pytest.mark.parametrize("step", [2, 5])
def test_a_resumed_run_refills_with_the_same_prompts(
    dapo_run: Run, micro_model: Path, tmp_path: Path, step: int
) -> None:
    with pytest.raises(PowerCut):
        train(dapo_settings(micro_model, tmp_path / "run"), observer=Crash(step))
    assert_same_run(dapo_run, train(resume=tmp_path / "run"))


def test_refills_end_at_their_limit_and_a_step_without_a_score_stops(
    micro_model: Path, tmp_path: Path
) -> None:
    """Nothing is ever scored here: each place is filled 1 + max_refills times."""
    config = short(micro_model, tmp_path / "run", "dapo", max_refills=3)
    config["tasks"][0] |= {"reward": "declines", "metrics": []}
    num_rollouts = 6 * (1 + 3)
    with pytest.raises(FailureLimitError, match=f"none of its {num_rollouts} rollouts could be"):
        train(config | {"max_steps": 1})
    run = Run.open(tmp_path / "run")
    assert not [row for row in run.metrics if row["phase"] == "train"]
    assert not (run.path / "policy").exists(), "nothing was learned"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        # limit 100, buffer 20: nothing up to 80, half at 90, all from 100 on.
        ({}, {80: 0.0, 90: -0.5, 100: -1.0, 500: -1.0}),
        ({"overlong_penalty": 0.4}, {90: -0.2, 100: -0.4}),
        ({"overlong_limit": 40}, {32: 0.0, 36: -0.5, 40: -1.0}),
    ],
)
def test_overlong_penalty_by_hand(own: dict[str, Any], expected: dict[int, float]) -> None:
    penalty = make("dapo", **own).length_penalty_of(100)
    assert penalty is not None and {n: penalty(n) for n in expected} == pytest.approx(expected)


def test_algorithms_without_an_overlong_penalty_have_none() -> None:
    assert make("dapo", overlong_penalty=0.0).length_penalty_of(100) is None
    assert make("grpo").length_penalty_of(100) is None
