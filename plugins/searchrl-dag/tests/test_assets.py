"""Assets of the package: a policy (`--model tiny` means it), a preset, a recorded run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer

import searchrl
from searchrl import ConfigError, Run, load_plugins
from searchrl.config import build_config
from searchrl.config.packaged import find_packaged
from searchrl.programs.setup.init_from import settings_of_source
from searchrl.programs.setup.planning import plan_run
from searchrl.rewards.expression import RewardSchedule
from searchrl.run_folder.changes import describe_sources
from searchrl.testing import play_episode

MODULE = "searchrl_dag"
NAME = "searchrl_dag:assets/tiny"
PRESET = "searchrl_dag:presets/published"
TABLE = "searchrl_dag:presets/table"
MAX_EPISODE_TOKENS = 250
PACKAGE = Path(__file__).resolve().parents[1]
FOLDER = PACKAGE / "searchrl_dag" / "assets" / "tiny"
RUN = Run.open(PACKAGE / "recorded_run")


def test_tiny_means_it_for_the_protocol_dag() -> None:
    plan = plan_run({"env": "multisource", "model": "tiny"})
    settled = plan.settled(load_plugins([MODULE]))
    assert settled.config.model.name == NAME and settled.model.is_tiny
    assert find_packaged(NAME) == FOLDER
    assert any(NAME in note and "protocol 'dag'" in note for note in settled.notes)


def test_the_recorded_command_makes_a_policy_of_its_shape() -> None:
    config = build_config(yaml.safe_load((PACKAGE / "cold_start.yaml").read_text("utf-8")))
    shape = config.model.scratch.model_dump(exclude={"tokenizer_tasks", "num_layers"})
    shape["num_hidden_layers"] = config.model.scratch.num_layers
    shape["num_attention_heads"] = shape.pop("num_heads")
    shape["num_key_value_heads"] = shape.pop("num_kv_heads")
    made = json.loads((FOLDER / "config.json").read_text("utf-8"))
    assert {name: made[name] for name in shape} == shape
    named = {name for stage in config.sft.stages for name in stage.mix}
    assert named <= set(load_plugins([MODULE]).get("env", "multisource").script_names)


def test_an_episode_is_short_and_every_word_of_a_name_is_one_token() -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    env = searchrl.make_env("multisource", plugins=[MODULE])
    expert = load_plugins([MODULE]).get("env", "multisource").load_script("expert")
    for index in range(60):
        says = expert(env, env.unwrapped.make_task("test", index), env.unwrapped.protocol)
        episode = play_episode(
            env, says, env.unwrapped.protocol, split="test", index=index, max_turns=2
        )
        turns = "".join(turn.text + turn.observation for turn in episode.turns)
        text = episode.task.question + turns
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert len(ids) <= MAX_EPISODE_TOKENS and tokenizer.decode(ids) == text
    for name in env.unwrapped.world("test").entities:
        num_tokens = len(tokenizer.encode(f" {name}", add_special_tokens=False).ids)
        assert num_tokens == len(name.split()), name


def test_it_plans_well_and_knows_no_source_of_this_world() -> None:
    """As many right sources as by chance: a third, and what is answered by them."""
    result = searchrl.evaluate(
        {
            "plugins": [MODULE],
            "env": {"name": "multisource", "world_seed": 24},
            "model": "tiny",
            "eval": {"num_tasks": 120, "forced": False},
        }
    )
    value = {name: metric["value"] for name, metric in result.metrics.items()}
    assert value["dag"] >= 0.98 and value["em"] <= 0.3
    assert 0.2 <= value["dag_sources"] <= 0.4


def test_the_weights_of_the_preset_change_after_thirty_steps() -> None:
    plan = plan_run({"preset": PRESET, "env": "multisource", "model": "tiny"})
    schedule = RewardSchedule.parse(plan.config.tasks[0].reward)
    for step, weights in ((1, (0.2, 0.4, 0.4)), (30, (0.2, 0.4, 0.4)), (31, (0.5, 0.25, 0.25))):
        named = {name: weight for weight, name in schedule.at(step).terms}
        assert named == dict(zip(("dag_judge", "dag", "format"), weights, strict=True))
    assert plan.config.tasks[0].env.name == "multisource"


@pytest.mark.parametrize("preset", [PRESET, "nobody:published"])
def test_the_preset_follows_the_tasks_of_a_run_and_not_its_weights(
    tmp_path: Path, preset: str
) -> None:
    """Even where the package is not installed any more."""
    plan = plan_run({"preset": PRESET, "env": "multisource", "model": "tiny"})
    (tmp_path / "config.yaml").write_text(plan.config.to_yaml().replace(PRESET, preset))
    (tmp_path / "provenance.json").write_text("{}")
    begun = {"init_from": str(tmp_path)}
    again = settings_of_source(Run(tmp_path), [begun])
    assert "preset" not in again
    assert [int(step) for step in again["tasks"][0]["reward"]] == [0, 30]
    elsewhere = settings_of_source(Run(tmp_path), [begun | {"env": "regulations"}])
    assert "preset" not in elsewhere and "tasks" not in elsewhere


@pytest.mark.parametrize(
    ("preset", "said"),
    [
        ("searchrl_dag:presets/publishd", "'presets/publishd.yaml' in an installed package"),
        ("nobody:published", "in an installed package 'nobody'. Install that package"),
    ],
)
def test_a_preset_that_is_not_there_says_so(preset: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_run({"preset": preset})


def test_the_recorded_run_is_that_of_the_preset_on_the_policy_of_the_package() -> None:
    assert RUN.config.preset == TABLE and RUN.config.tasks[0].env.name == "multisource"
    weights = describe_sources(RUN.config, {})["weights"]
    assert RUN.provenance["weights"] == weights, "train and record again: the policy is another one"


def test_it_learned_the_table_and_the_readme_says_so() -> None:
    before, after = RUN.summary["before"], RUN.summary["after"]
    text = (PACKAGE / "README.md").read_text("utf-8")
    for name in ("em", "dag_sources"):
        assert after[name]["n"] >= 256 and after[name]["low"] > before[name]["high"], name
        for metric in (before[name], after[name]):
            assert f"{metric['value']:.3f}" in text, name
