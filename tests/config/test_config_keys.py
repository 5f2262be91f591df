"""The description of the configuration: keys and lookups."""

from __future__ import annotations

from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.config.keys import ConfigKey, config_keys, find_keys, write
from searchrl.errors import UnknownNameError

KEYS = config_keys()


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
    assert key("sft.stages[].schedule").type == "`constant`, `linear`, `cosine`"
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
    ],
)
def test_unknown_key_gets_near_matches(name: str, text: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_keys(name)
    assert text in str(caught.value)
