"""What the keys of a config become: limits, sampling settings, and a generator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from session_toy import MakeSession

from searchrl.config import build_config
from searchrl.core.episode import StopReason
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout import drivers
from searchrl.engine.rollout.dialogue import Limits
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


def make(
    section: str = "rollout",
    positions: int = 1000,
    device: str = "cpu",
    broken: str = "",
    **more: Any,
) -> tuple[Any, list[Any], list[str]]:
    """A driver, the generators that were made for it, and its notes; `broken` cannot be made."""
    made: list[Any] = []
    notes: list[str] = []

    def make_one(name: str, policy: Any, *facts: Any, **sizes: Any) -> str:
        if name == broken:
            raise PolicyError("sliding windows")
        made.append((name, *facts, sizes))
        return name

    kinds: Any = SimpleNamespace(
        get=lambda kind, name: SimpleNamespace(make=lambda *f, **s: make_one(name, *f, **s))
    )
    config = build_config(SETTINGS, {"engine": more})
    where = SimpleNamespace(type=device)
    policy = SimpleNamespace(max_positions=positions, device=where, renderer=None)
    driver = drivers.make_driver(policy, config, kinds, getattr(config, section), notes.append)
    return driver, made, notes


@pytest.mark.parametrize(("positions", "total"), [(1000, 300), (200, 200)])
def test_limits_are_those_of_the_config_the_context_and_the_model(positions: int, total: int):
    driver, made, notes = make(positions=positions)
    assert driver.limits == Limits(50, 60, total, 3.0, thinking=False) and driver.deterministic
    sizes = {"num_slots": 5, "max_length": total}
    assert made == [("slots", Sampling(0.7, 3, 0.8, 0.1), sizes)] and not notes
    ((_, sampling, sizes),) = make("eval")[1]
    assert sampling.temperature == 0.2 and sizes["num_slots"] == 9


def test_auto_falls_back_and_says_why_and_what_was_asked_for_does_not() -> None:
    driver, _, notes = make(broken="slots")
    assert (driver.generator, notes) == ("hf", ["generator: auto → hf (sliding windows)"])
    with pytest.raises(PolicyError, match="sliding windows"):
        make(broken="slots", generator="slots")
    for asked, device, expected in (("auto", "cuda", False), (True, "cuda", True),
                                    (False, "cpu", False)):  # fmt: skip
        assert make(device=device, deterministic=asked)[0].deterministic is expected


def test_scripts_and_endpoints_are_bounded_by_turns_and_by_the_server() -> None:
    scripted = drivers.make_scripted_driver(CONFIG)
    assert scripted.limits == Limits(1 << 30, 60, 1 << 30, 3.0) and scripted.deterministic
    tokens: Any = SimpleNamespace(encode_model_text=None, decode=None)
    assert drivers.make_scripted_driver(CONFIG, tokens).limits.max_total_tokens == 300
    asking = drivers.make_endpoint_driver(CONFIG, tokens)
    generator: Any = asking.generator
    assert asking.limits == Limits(50, 60, 1 << 30, 3.0, thinking=False)
    assert not asking.deterministic and (generator._temperature, generator._top_p) == (0.2, 0.8)


def test_a_demonstration_ends_at_the_last_position_of_the_policy(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Policy, "max_positions", 60)
    session = make_session(rollout={"max_turn_tokens": 300})
    rollout = session.imitate(0, 0, ["<answer>" + "x" * 200 + "</answer>"])
    assert len(rollout.trajectory) == 60
    assert rollout.episode.stop_reason is StopReason.TOTAL_TOKENS
