"""With vLLM itself: the contract of generators, weights that travel, a server that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import lora_policy, micro_policy
from generator_play import PROMPTS, finish, full_logps, run
from searchrl_vllm.generator import _SERVERS

# The contract; these functions take the fixtures of this package.
from test_generators import (  # noqa: F401
    test_batch_composition_does_not_change_what_is_sampled,
    test_closed_dialogue_is_forgotten_and_nothing_in_flight_gives_nothing,
    test_draws_depend_on_key_and_position_only,
    test_end_of_message_ends_the_turn_and_is_kept,
    test_greedy_is_what_model_generate_writes,
    test_logprobs_of_a_padded_batch_equal_an_unpadded_forward_pass,
    test_no_cache_survives_a_weight_update,
    test_non_finite_logits_name_the_remedy,
    test_siblings_differ_and_equal_keys_agree,
    test_stop_string_ends_the_turn_with_the_token_that_completed_it,
    test_version_is_stamped_and_synced,
)

from searchrl import Run, train
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling import Sampling
from searchrl.screen.observer import Observer
from searchrl.testing import assert_conforms

Make = Callable[..., Any]

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


def largest_gap(policy: Policy, turns: Any) -> float:
    """The largest |sampler - trainer| of turns on PROMPTS, in nats."""
    return max(
        abs(one - other)
        for prompt, turn in zip(PROMPTS, turns, strict=True)
        for one, other in zip(
            turn.logps, full_logps(policy, [*prompt, *turn.ids], len(prompt), 1.0), strict=True
        )
    )


def test_a_step_is_sampled_with_the_adapter_of_the_step_before(make: Make, micro_model: Path):
    """Fails by nats without the sync: the adapter changes by more than rounding."""
    policy = lora_policy(micro_model)
    generator = make(policy, Sampling())
    versions = []
    for version in range(3):
        policy.version = version
        with torch.no_grad():
            for parameter in policy.parameters:
                parameter.mul_(1.5)
        generator.sync(policy)
        turns = run(generator, PROMPTS, range(4), max_tokens=20)
        gap = largest_gap(policy, turns)
        versions += [turn.version for turn in turns]
        print(f"version {version}: largest |sampler - trainer| {gap:.2g} nats")
        assert gap < 1e-5
    assert versions == [0] * 4 + [1] * 4 + [2] * 4
    with torch.no_grad():
        for parameter in policy.parameters:
            parameter.mul_(1.5)
    assert largest_gap(policy, turns) > 1e-3  # what a missing sync would look like


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_lost_in_the_middle_of_a_step_loses_and_doubles_nothing(
    make: Make, micro_model: Path, sent: signal.Signals
):
    """Killed; or it hangs."""
    policy = lora_policy(micro_model)
    generator = make(policy, Sampling())
    expected = run(generator, PROMPTS, range(4), max_tokens=200)
    server = generator._weights.server
    handles = [generator.open(p, 1, [key])[0] for key, p in enumerate(PROMPTS)]
    for handle in handles:
        generator.submit(handle, [], (), 200)
    before, server._client.timeout = server._process, 20.0
    generator._ask_waiting()
    os.killpg(before.pid, sent)
    turns = finish(generator, handles, is_last=True)
    assert server._process is not before
    assert [turn.ids for turn in turns] == [turn.ids for turn in expected]
    assert largest_gap(policy, turns) < 1e-5


class Killer(Observer):
    """Kills the servers of this process once, in the middle of the second step."""

    steps = 0
    has_killed = False

    def step(self, step: int, max_steps: int, metrics: Any) -> None:
        self.steps = step

    def phase(self, name: str, done: int, total: int) -> None:
        if name == "sample" and self.steps == 1 and done and not self.has_killed:
            self.has_killed = True
            for weights in _SERVERS.values():
                if weights.server._process is not None:
                    os.killpg(weights.server._process.pid, signal.SIGKILL)


def small_run(vllm_python: str, folder: Path, engine: Any = None, **more: Any) -> dict[str, Any]:
    generator = {"name": "vllm", "python": vllm_python, "args": ["--enforce-eager"]}
    return {
        "env": "regulations", "model": "tiny", "run_dir": str(folder / "run"),
        "plugins": ["searchrl_vllm"], "engine": {"generator": generator, **(engine or {})},
        "rollout": {"prompts_per_step": 2, "group_size": 4}, "eval": {"num_tasks": 4}, **more,
    }  # fmt: skip


def versions_by_step(run: Run) -> list[set[int]]:
    played = [row for row in run.rollouts() if row["phase"] == "train"]
    steps = sorted({row["step"] for row in played})
    assert len({row["rollout_id"] for row in played}) == len(played) == 8 * len(steps)
    return [{row["policy_version"] for row in played if row["step"] == one} for one in steps]


def test_a_run_whose_server_is_killed_in_a_step_ends_right(vllm_python: str, tmp_path: Path):
    killer = Killer()
    made = train(small_run(vllm_python, tmp_path, max_steps=3), trust=True, observer=killer)
    assert killer.has_killed and made.config.algorithm.name == "tis"
    rows = [row["metrics"] for row in made.read_metrics().rows if row["phase"] == "train"]
    gaps = [row["mismatch_max"]["value"] for row in rows if "mismatch_max" in row]
    print("mismatch_max", gaps)
    assert len(rows) == 3 and gaps and max(gaps) < 1e-3
    assert versions_by_step(made) == [{0}, {1}, {2}]


def test_steps_drawn_ahead_have_the_weights_from_before_the_update(
    vllm_python: str, tmp_path: Path
):
    """The labels that vLLM sends with its tokens say so."""
    scale = {"backend": "copy", "max_staleness": 1}
    made = train(small_run(vllm_python, tmp_path, max_steps=3, scale=scale), trust=True)
    assert versions_by_step(made) == [{0}, {0}, {1}]


def test_every_criterion_of_generators_holds(vllm_python: str):
    settings = {"python": vllm_python, "args": ["--enforce-eager"]}
    assert_conforms("generator:vllm", settings=settings, plugins=["searchrl_vllm"])


def test_whole_weights_travel(device: torch.device, make: Make, micro_model: Path):
    """From a card by vLLM's weight transfer, from a CPU by a folder."""
    policy = micro_policy(micro_model, device=device)
    generator = make(policy, Sampling())
    for version in (1, 2):
        policy.version = version
        with torch.no_grad():
            policy.parameters[0].mul_(1.5)
        turns = run(generator, PROMPTS, range(4))
        assert largest_gap(policy, turns) < (1e-5 if device.type == "cpu" else 1e-2)


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_processes_that_share_weights_out_sample_at_one_server(
    vllm_python: str, tmp_path: Path, adapter: str
):
    """The sampler has the weights of each step: what it says is what the trainer computes."""
    model, engine = {"name": "tiny", "adapter": adapter}, {"sharding": "fsdp2"}
    config = small_run(vllm_python, tmp_path, engine, model=model, max_steps=2)
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command += ["-m", "searchrl", "train", "--config", str(tmp_path / "config.json")]
    subprocess.run(command, check=True)
    rows = Run.open(tmp_path / "run").metric_rows()
    steps = [row["metrics"] for row in rows if row["phase"] == "train"]
    assert len(steps) == 2 and all(one["mismatch_max"]["value"] < 1e-4 for one in steps)
