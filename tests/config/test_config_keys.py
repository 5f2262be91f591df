"""The description of the configuration: keys, lookups and the JSON schema."""

from __future__ import annotations

from typing import Any

import pytest

from searchrl.config import RunConfig, build_config, load_preset, preset_names
from searchrl.config.keys import UNSET, ConfigKey, config_keys, config_schema, find_keys, write
from searchrl.config.tree import TASK_KEYS
from searchrl.errors import UnknownNameError

KEYS = config_keys()
PRESETS = {name: load_preset(name) for name in preset_names()}


def key(name: str) -> ConfigKey:
    return next(one for one in KEYS if one.key == name)


def leaves(tree: Any, prefix: str = "") -> set[str]:
    """Keys of a resolved config: what the description must have."""
    found = set()
    for name, value in tree.items():
        path = f"{prefix}{name}"
        found.add(path)
        is_named = prefix == "tasks[]." or name in ("generator", "mix", "settings")
        if isinstance(value, dict) and not is_named:
            found |= leaves(value, f"{path}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            found |= leaves(value[0], f"{path}[].")
    return found


def test_every_key_of_the_tree_is_described_once_with_a_reason() -> None:
    config = build_config().to_dict()
    assert [one.key for one in KEYS if not one.why] == []
    assert len({one.key for one in KEYS}) == len(KEYS)
    config["alarms"]["watch"] = 0  # by name, as plugins are
    assert {one.key for one in KEYS} == leaves(config)


def test_types_and_defaults_are_in_words() -> None:
    lr = key("optim.lr")
    assert (lr.type, lr.default, lr.section) == ("number ≥ 0 ≤ 1", "`2e-5`", "optim")
    assert key("algorithm.clip_low").type == "number > 0 < 1 or null"
    assert key("sft.stages[].schedule").type == "`constant`, `cosine`"
    assert key("sft").type == "section"
    assert [write(v) for v in (1e-4, 1.5e-5, 0.01, None, "a")] == [
        "1e-4", "1.5e-5", "0.01", "null", "a",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("optim.lr", ["optim.lr"]),
        ("env", ["tasks[].env"]),
        ("tasks.0.metrics", ["tasks[].metrics"]),
        ("sft.stages.1.lr", ["sft.stages[].lr"]),
        ("sft.stages.lr", ["sft.stages[].lr"]),
        ("seed", ["seed"]),
    ],
)
def test_a_key_is_found_however_it_is_written(name: str, found: list[str]) -> None:
    assert [one.key for one in find_keys(name)] == found


def test_a_section_is_all_its_keys() -> None:
    assert [one.key for one in find_keys("checkpoint")] == [
        "checkpoint", "checkpoint.every", "checkpoint.keep_last", "checkpoint.keep_best",
    ]  # fmt: skip
    assert "sft.stages[].mix" in [one.key for one in find_keys("sft")]
    assert "policy" in [one.key for one in find_keys("run")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("optim.lrr", "unknown config key 'optim.lrr'. Did you mean 'optim.lr'"),
        ("lr", "unknown config key 'lr'. Did you mean 'optim.lr' or 'sft.stages.lr'?"),
        ("env.difficulty", "'env.difficulty' is a setting of a plugin"),
        ("engine.generator.extend_tokens", "is a setting of a plugin"),
    ],
)
def test_unknown_key_gets_near_matches(name: str, text: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_keys(name)
    assert text in str(caught.value)


def test_values_of_presets() -> None:
    assert key("optim.lr").find_in(PRESETS["tiny"]) == 1e-4
    assert key("tasks[].protocol").find_in({"protocol": {"name": "p"}}) == {"name": "p"}
    assert key("optim.lr").find_in({"optim": {"epochs": 2}}) is UNSET
    assert key("sft.stages[].lr").find_in({"sft": {"stages": [{"lr": 1}, {"lr": 2}]}}) == [1, 2]


# --- the schema ----------------------------------------------------------------------------
def find_problems(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> list[str]:
    """What a schema of the words used here has against a value; enough of JSON schema to tell."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        every = [find_problems(one, value, root) for one in schema["anyOf"]]
        return [] if [] in every else every[0]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{value!r} is none of {schema['enum']}"]
    if "const" in schema and value != schema["const"]:
        return [f"{value!r} is not {schema['const']!r}"]
    kinds = {
        "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
        "integer": int, "number": (int, float),
    }  # fmt: skip
    kind = schema.get("type")
    if isinstance(kind, list):
        schema = {**schema, "anyOf": [{"type": one} for one in kind]}
        return find_problems({"anyOf": schema["anyOf"]}, value, root)
    if kind and (not isinstance(value, kinds[kind]) or (kind != "boolean" and value is True)):
        return [f"{value!r} is no {kind}"]
    if kind == "array":
        return [p for item in value for p in find_problems(schema["items"], item, root)]
    if kind == "object" and "properties" in schema:
        known, more = schema["properties"], schema.get("additionalProperties", True)
        problems = [f"unknown key {name}" for name in value if name not in known and not more]
        for name in value.keys() & known.keys():
            problems += find_problems(known[name], value[name], root)
        return problems
    if "minimum" in schema and value < schema["minimum"]:
        return [f"{value} is below {schema['minimum']}"]
    return []


def problems(value: Any) -> list[str]:
    schema = config_schema()
    return find_problems(schema, value, schema)


@pytest.mark.parametrize(
    "layer",
    [
        *PRESETS.values(),
        {"env": "corpus", "reward": "em", "protocol": {"name": "p", "own": 1}},
        {"model": "tiny", "algorithm": "dapo", "plugins": ["mine.py"]},
        {"log": {"trackers": ["jsonl", {"name": "wandb", "project": "p"}]}},
        {"log": {"trackers": "jsonl"}, "engine": {"generator": "hf"}},
        {"reward": {"0": "em", "3": "f1"}},
        {"tasks": [{"weight": {"0": 1.0, "30": 0.5}, "difficulty": {"0": "easy"}}]},
        RunConfig().to_dict(),
    ],
)
def test_schema_accepts_what_the_config_accepts(layer: dict[str, Any]) -> None:
    assert problems(layer) == []
    build_config(layer)


@pytest.mark.parametrize(
    "layer",
    [
        {"optim": {"lrr": 1}},
        {"optim": {"lr": "fast"}},
        {"seed": -1},
        {"model": {"adapter": "qlora"}},
        {"envs": "corpus"},
        {"log": {"trackers": 3}},
    ],
)
def test_schema_refuses_what_the_config_refuses(layer: dict[str, Any]) -> None:
    assert problems(layer) != []
    with pytest.raises(Exception, match="not valid"):
        build_config(layer)


def test_schema_accepts_one_plugin_without_a_list_as_files_do() -> None:
    assert problems({"plugins": "mine.py"}) == []


def test_schema_holds_every_reason() -> None:
    schema = config_schema()
    described = {name: part.get("description", "") for name, part in schema["properties"].items()}
    assert set(described) == set(RunConfig.model_fields) | set(TASK_KEYS)
    lr = schema["$defs"]["OptimConfig"]["properties"]["lr"]
    assert lr["description"].startswith("Peak learning rate") and lr["default"] == 2e-5
