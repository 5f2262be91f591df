"""The policy that the package brings: `--model tiny` means it, and training makes it good."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from tokenizers import Tokenizer

import searchrl
from searchrl import load_plugins
from searchrl.config import build_config
from searchrl.config.packaged import find_packaged
from searchrl.programs.setup.planning import plan_run

MODULE = "searchrl_dag"
NAME = "searchrl_dag:assets/tiny"
MAX_EPISODE_TOKENS = 250
HEURISTICS = ("one_general", "every_source", "general_plan")
PUBLISHED = "0.5*dag_judge+0.25*dag+0.25*format"


def folder() -> Path:
    found = find_packaged(NAME)
    assert found is not None
    return found


def test_tiny_means_it_for_the_protocol_dag() -> None:
    plan = plan_run({"env": "multisource", "model": "tiny"})
    settled = plan.settled(load_plugins([MODULE]))
    assert settled.config.model.name == NAME and settled.model.is_tiny
    assert any(NAME in note and "protocol 'dag'" in note for note in settled.notes)


def test_the_recorded_command_makes_a_policy_of_its_shape() -> None:
    text = (Path(__file__).parents[1] / "cold_start.yaml").read_text("utf-8")
    config = build_config(yaml.safe_load(text))
    shape = config.model.scratch.model_dump(exclude={"tokenizer_tasks", "num_layers"})
    shape["num_hidden_layers"] = config.model.scratch.num_layers
    shape["num_attention_heads"] = shape.pop("num_heads")
    shape["num_key_value_heads"] = shape.pop("num_kv_heads")
    made = json.loads((folder() / "config.json").read_text("utf-8"))
    assert {name: made[name] for name in shape} == shape
    named = {name for stage in config.sft.stages for name in stage.mix}
    assert named <= set(load_plugins([MODULE]).get("env", "multisource").script_names)


def test_an_episode_is_short_and_every_name_is_two_tokens() -> None:
    tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    env = searchrl.make_env("multisource", plugins=[MODULE])
    expert = load_plugins([MODULE]).get("env", "multisource").load_script("expert")
    protocol = env.unwrapped.protocol
    for index in range(60):
        text, info = env.reset(options={"split": "test", "index": index})
        policy, observation, is_over = expert(env, info["task"], protocol), text, False
        while not is_over:
            turn = policy.act(observation)
            observation, _, terminated, truncated, _ = env.step(turn)
            text, is_over = text + turn + observation, terminated or truncated
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert len(ids) <= MAX_EPISODE_TOKENS and tokenizer.decode(ids) == text
    world = env.unwrapped.world("test")
    for name in (*world.towns, *world.people):
        assert len(tokenizer.encode(f" {name}", add_special_tokens=False).ids) == 2, name


def test_it_plans_and_leaves_something_to_learn() -> None:
    result = searchrl.evaluate(
        {
            "plugins": [MODULE],
            "env": "multisource",
            "model": "tiny",
            "eval": {"num_tasks": 40, "forced": False},
        }
    )
    value = {name: metric["value"] for name, metric in result.metrics.items()}
    assert 0.2 <= value["dag"] <= 0.8 and value["em"] <= 0.5
