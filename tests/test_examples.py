"""Every example runs as its first lines say, and the example configurations are valid."""

import os
import runpy
import sys
from pathlib import Path

import pytest
from command_line import succeed
from pytest import MonkeyPatch

from searchrl.config import build_config, load_preset, load_yaml
from searchrl.engine.rollout.worlds import make_worlds, name_defaults
from searchrl.plugins import load_plugins

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
pytestmark = pytest.mark.usefixtures("own_folder")

TRAINING = "02_train_tiny.py"

EXPECTED = {
    "00_grpo_by_hand.py": ["They agree.", "clipped"],
    "01_scripted_episode.py": ["MODEL  turn  0", "mask 1", "ENV    turn  0", "reward 2.0"],
    "02_train_tiny.py": ["run folder: runs", "em after", "step   1: reward", "answer:"],
    "03_my_plugin.py": ["<search>", "reward 2.10", "passive 0.00"],
}
"""What each example must print."""


def run(name: str, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {TRAINING}))
def test_example_runs(
    name: str, monkeypatch: MonkeyPatch, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(name, monkeypatch)
    printed = capsys.readouterr().out
    for text in EXPECTED[name]:
        assert text in printed
    assert "\033[" not in printed, "colours belong on a terminal only"
    assert not list(own_folder.iterdir()), "an example that trains nothing leaves nothing behind"


@pytest.mark.thorough
def test_training_example_runs_in_miniature(
    monkeypatch: MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = os.environ.get("SEARCHRL_EXAMPLE_STEPS", "1")
    monkeypatch.setenv("SEARCHRL_EXAMPLE_STEPS", steps)
    small = {"rollout": {"prompts_per_step": 2, "group_size": 2}, "eval": {"num_tasks": 2}}
    monkeypatch.setattr(
        "searchrl.programs.setup.planning.build_config",
        lambda *layers: build_config(*layers, small),
    )
    run(TRAINING, monkeypatch)
    printed = capsys.readouterr().out
    for text in EXPECTED[TRAINING]:
        assert text in printed


@pytest.mark.thorough
def test_plugin_example_keeps_every_criterion() -> None:
    said = succeed("check", EXAMPLES / "03_my_plugin.py").output
    assert "env capitals" in said and "reward frugal" in said


OF_PACKAGES = {
    "dag_r1_distill_7b.yaml": "searchrl-dag",
    "retrieval_control.yaml": "searchrl-control",
}
"""Examples that need a package of plugins, whose tests look at them."""


@pytest.mark.parametrize(
    "path",
    sorted(path for path in EXAMPLES.rglob("*.yaml") if path.name not in OF_PACKAGES),
    ids=lambda path: path.name,
)
def test_example_configuration_is_valid_and_its_names_are_registered(path: Path) -> None:
    config = build_config(load_yaml(path))
    registry = load_plugins([str(EXAMPLES.parent / one) for one in config.plugins])
    assert registry.get("algorithm", config.algorithm.name).make(**config.algorithm.settings)
    for world in make_worlds(config, registry):
        assert world.num_tasks("train") > 0 and world.num_tasks(config.eval.split) > 0
        world.close()


def test_example_configuration_is_the_main_command() -> None:
    preset = load_preset("tiny")
    flags = build_config(preset, {"env": "regulations", "reward": "format+em"})
    file = build_config(preset, load_yaml(EXAMPLES / "regulations.yaml"))
    registry = load_plugins()
    named = [name_defaults(config, registry).fingerprint for config in (file, flags)]
    assert named[0] == named[1]
