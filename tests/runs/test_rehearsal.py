"""A rehearsal goes through a whole run without weights, and names the part at fault."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from command_line import MICRO_SETTINGS, succeed
from train_toy import TOY_PLUGIN, settings

from searchrl.engine.checks.doctor import CHECKS
from searchrl.engine.checks.report import Report, State
from searchrl.errors import ConfigError
from searchrl.programs.setup.planning import plan_run
from searchrl.runs.rehearsal import PARTS, rehearse
from searchrl.screen.observer import Observer

FIXTURES = TOY_PLUGIN.parent

pytestmark = pytest.mark.usefixtures("threads_restored")


def play(folder: Path, **more: Any) -> Report:
    more = {"optim": {"warmup_steps": 0}, "model": {"adapter": "lora"}} | more
    return rehearse(plan_run(settings(folder, Path("never-written"), **more)), Observer(), True)


def test_a_sound_configuration_passes_and_leaves_nothing(
    micro_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = play(
        micro_model,
        log={"trackers": ["jsonl"]},
        plugins=[str(TOY_PLUGIN), str(FIXTURES / "sound" / "generator.py")],
        engine={"generator": "sound"},
        max_sampled_tokens=1,
    )
    assert found.is_good, found.to_dict()
    assert {one.name for one in found.checks} == {*PARTS, *CHECKS, "not tried"}
    says = {one.name: one.says for one in found.checks}
    assert "1 → 1 layers" in says["model"]
    assert says["resume"].startswith("2 steps")
    assert "jsonl" in says["train"] and "step_000001" in says["train"]
    assert "largest prompt: " in says["limits"] and " of 300 tokens" in says["limits"]
    assert "merged" in says["export"] and "real weights" in says["not tried"]
    assert "engine.generator: sound" in says["not tried"]
    assert not [*tmp_path.glob("searchrl-*")] and not Path("never-written").exists()


FAULTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "LoRA targets that do not exist": (
        "start", "w_gate", {"model": {"adapter": "lora", "lora_targets": ["w_gate"]}},
    ),
    "a reward that raises": ("scripted", "no such judge", {"task": {"reward": "raises"}}),
    "a step that raises": ("episodes", "is broken", {"task": {"env": {
        "name": "toy-faulty", "fault": "step-raises"}}}),
    "an environment without a script, and a reward that raises": ("train", "no such judge", {
        "task": {"env": {"name": "plain"}, "reward": "raises"}}),
    "a tracker that cannot write": ("train", "outside", {
        "log": {"trackers": [{"name": "jsonl", "path": "../outside.jsonl"}]}}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_part_at_fault_is_named_and_nothing_behind_it_is_tried(
    fault: str, micro_model: Path
) -> None:
    part, words, more = FAULTS[fault]
    found = play(micro_model, **more)
    failed = found.of(State.FAILED)
    assert part in {one.name for one in failed}
    assert any(words in one.says for one in failed), failed
    left = found.checks[-1].says
    assert "resume" in left and "real weights" in left


def test_several_processes_are_refused(micro_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="without torchrun"):
        play(micro_model)


def test_the_command_leaves_the_run_folder_for_the_run(micro_model: Path, tmp_path: Path) -> None:
    flags = [word for one in MICRO_SETTINGS for word in ("--set", one)]
    flags += ["--model", micro_model, "--run-dir", tmp_path / "mine", "--rehearse"]
    result = succeed("train", "--env", "regulations", *flags, "--json")
    assert json.loads(result.stdout)["is_good"]
    assert not (tmp_path / "mine").exists()
