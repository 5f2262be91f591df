"""What the keys of a config become: limits, sampling settings, and a generator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.engine.rollout.dialogue import Limits
from searchrl.engine.rollout.drivers import (
    limits_of,
    make_driver,
    make_endpoint_driver,
    make_scripted_driver,
)
from searchrl.engine.sampling.generator import Sampling
from searchrl.errors import PolicyError

SETTINGS: dict[str, Any] = {
    "model": {"max_context": 300, "thinking": False},
    "rollout": {"max_total_tokens": 400, "max_turn_tokens": 50, "max_observation_tokens": 60,
                "env_timeout_s": 3.0, "temperature": 0.7, "batch_size": 5},
    "eval": {"temperature": 0.2, "batch_size": 9},
    "sampling": {"top_k": 3, "top_p": 0.8, "min_p": 0.1, "allow_truncated": True},
}  # fmt: skip
CONFIG = build_config(SETTINGS)


def policy(max_positions: int = 1000, device: str = "cpu") -> Any:
    device_of = SimpleNamespace(type=device)
    return SimpleNamespace(max_positions=max_positions, device=device_of, renderer=None)


class Kinds:
    """A registry of generators; those in `broken` cannot run the policy."""

    def __init__(self, *broken: str) -> None:
        self.broken = broken
        self.made: list[Any] = []

    def get(self, kind: str, name: str) -> Any:
        def make(policy: Any, sampling: Sampling, **more: Any) -> str:
            if name in self.broken:
                raise PolicyError("sliding windows")
            self.made.append((name, sampling, more))
            return name

        return SimpleNamespace(make=make)


def test_limits_are_those_of_the_config_the_context_and_the_model() -> None:
    assert limits_of(CONFIG) == Limits(50, 60, 300, 3.0, thinking=False)
    for positions, total in ((1000, 300), (200, 200)):
        kinds: Any = Kinds()
        driver = make_driver(policy(positions), CONFIG, kinds, CONFIG.rollout)
        assert driver.limits == Limits(50, 60, total, 3.0, thinking=False)
        assert kinds.made == [
            ("slots", Sampling(0.7, 3, 0.8, 0.1), {"num_slots": 5, "max_length": total})
        ]
    make_driver(policy(), CONFIG, kinds, CONFIG.eval)
    assert kinds.made[-1][1].temperature == 0.2 and kinds.made[-1][2]["num_slots"] == 9


def test_auto_falls_back_and_says_why_and_what_was_asked_for_does_not() -> None:
    notes: list[str] = []
    kinds: Any = Kinds("slots")
    driver = make_driver(policy(), CONFIG, kinds, CONFIG.rollout, notes.append)
    assert (driver.generator, notes) == ("hf", ["generator: auto → hf (sliding windows)"])
    named = build_config(SETTINGS, {"engine": {"generator": "slots"}})
    with pytest.raises(PolicyError, match="sliding windows"):
        make_driver(policy(), named, kinds, named.rollout)


@pytest.mark.parametrize(
    ("asked", "device", "expected"),
    [("auto", "cpu", True), ("auto", "cuda", False), (True, "cuda", True), (False, "cpu", False)],
)
def test_it_repeats_itself_on_a_cpu_unless_something_else_is_asked_for(
    asked: Any, device: str, expected: bool
) -> None:
    config = build_config(SETTINGS, {"engine": {"deterministic": asked}})
    kinds: Any = Kinds()
    driver = make_driver(policy(device=device), config, kinds, config.rollout)
    assert driver.deterministic is expected


def test_scripts_and_endpoints_are_bounded_by_turns_and_by_the_server() -> None:
    scripted = make_scripted_driver(CONFIG)
    assert scripted.limits == Limits(1 << 30, 60, 1 << 30, 3.0) and scripted.deterministic
    tokens: Any = SimpleNamespace(encode_model_text=None, decode=None)
    assert make_scripted_driver(CONFIG, tokens).limits == limits_of(CONFIG)
    client: Any = SimpleNamespace()
    driver = make_endpoint_driver(CONFIG, client)
    assert driver.limits == Limits(50, 60, 1 << 30, 3.0, thinking=False)
    generator: Any = driver.generator
    assert not driver.deterministic
    assert (generator._temperature, generator._top_p) == (0.2, 0.8)
