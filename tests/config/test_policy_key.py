"""The key `policy`: a text or a name with settings, and fingerprints that no text changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchrl.config import build_config, load_yaml, parse_set
from searchrl.config.policy import is_registered, policy_name
from searchrl.errors import ConfigError

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("layer", "fingerprint"),
    [
        ({}, "a120d661c5d2c6d8"),
        ({"policy": "scripted:two_search"}, "76d1178fb5b243ac"),
        ({"policy": {"name": "scripted:two_search"}}, "76d1178fb5b243ac"),
        (load_yaml(DOCS / "recorded_run" / "config.yaml"), "862901dfd89e1429"),
    ],
)
def test_a_policy_without_settings_is_stored_as_it_was_before_there_were_any(
    layer: dict[str, Any], fingerprint: str
) -> None:
    config = build_config(layer)
    assert config.to_dict()["policy"] == config.policy.name
    assert config.fingerprint == fingerprint


def test_settings_of_a_policy_are_kept_and_change_the_fingerprint() -> None:
    config = build_config({"policy": "mlp"}, parse_set("policy.hidden=64"))
    assert config.to_dict()["policy"] == {"name": "mlp", "hidden": 64}
    assert config.policy.settings == {"hidden": 64}
    assert config.fingerprint != build_config({"policy": "mlp"}).fingerprint
    assert build_config(config.to_dict()) == config


def test_another_policy_does_not_inherit_the_settings_of_the_one_it_replaces() -> None:
    under = {"policy": {"name": "mlp", "hidden": 64}}
    assert build_config(under, {"policy": "gru"}).policy.settings == {}
    assert build_config(under, {"policy": {"depth": 2}}).policy.settings == {
        "hidden": 64,
        "depth": 2,
    }


@pytest.mark.parametrize("name", ["model", "scripted", "scripted:random", "endpoint:http://x"])
def test_a_policy_of_no_plugin_takes_no_settings(name: str) -> None:
    assert not is_registered(name)
    with pytest.raises(ConfigError, match=f"policy '{name}' takes no settings, and hidden"):
        build_config({"policy": {"name": name, "hidden": 64}})


def test_the_name_of_a_policy_that_nobody_checked() -> None:
    assert [policy_name(v) for v in ("gru", {"name": "gru"}, {}, None, {"name": 3})] == [
        "gru", "gru", "", "", "",
    ]  # fmt: skip
