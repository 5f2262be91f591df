"""The recorded run: the policy of the package under the published reward; the README shows it."""

from __future__ import annotations

from pathlib import Path

from searchrl import Run
from searchrl.run_folder.changes import describe_sources

HERE = Path(__file__).resolve().parents[1]
RUN = Run.open(HERE / "recorded_run")


def test_it_is_the_published_reward_on_the_policy_of_the_package() -> None:
    task = RUN.config.tasks[0]
    assert task.reward == "0.5*dag_judge+0.25*dag+0.25*format" and task.env.name == "multisource"
    weights = describe_sources(RUN.config, {})["weights"]
    assert RUN.provenance["weights"] == weights, "train and record again: the policy is another one"


def test_it_learned_to_plan_and_to_answer_and_the_readme_says_so() -> None:
    before, after = RUN.summary["before"], RUN.summary["after"]
    text = (HERE / "README.md").read_text("utf-8")
    for name in ("em", "dag"):
        assert after[name]["n"] >= 256 and after[name]["low"] > before[name]["high"], name
        for metric in (before[name], after[name]):
            shown = f"{metric['value']:.3f} [{metric['low']:.3f}, {metric['high']:.3f}]"
            assert shown in text, name
