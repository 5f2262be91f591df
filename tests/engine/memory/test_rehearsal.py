"""The rehearsal: counts what is alive, and agrees with real tensors and with the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command_line import complaint, succeed
from engine_toy import micro_policy
from pytest import MonkeyPatch
from qwen3_toy import SMALL, save_qwen3

from searchrl.config import RunConfig, build_config, load_preset
from searchrl.engine.memory.footprint import SHAPES, find_footprint
from searchrl.engine.memory.forecast import predict
from searchrl.engine.memory.plan import CUDA_CONTEXT, MemoryPlan, Settings, parse_bytes
from searchrl.engine.memory.rehearsal import LiveBytes, peak_of_update, rehearse_update
from searchrl.engine.memory.watch import Outlook
from searchrl.engine.model import head, layout
from searchrl.engine.model.loading import ResolvedModel
from searchrl.errors import ConfigError, PolicyError

pytestmark = pytest.mark.thorough

CUDA = torch.device("cuda")
QWEN3_4B, QWEN3_06B = "Qwen/Qwen3-4B", "Qwen/Qwen3-0.6B"


def test_live_bytes_are_those_of_storages_that_are_not_freed():
    with LiveBytes() as live:
        first = torch.zeros(1000)
        view, same = first[10:], first.add_(1)
        assert live.now == live.peak == 4000
        second = first * 2
        assert live.now == 8000
        del second
        assert live.now == 4000 and live.peak == 8000
        del first, view, same
    assert live.now == 0 and live.peak == 8000


def small_config(folder: Path, is_checkpointing: bool) -> RunConfig:
    model = {"adapter": "lora", "lora_r": 4, "gradient_checkpointing": is_checkpointing}
    return build_config(
        {
            "model": {"name": str(folder), "dtype": "float32"} | model,
            "rollout": {"max_total_tokens": 300},
            "optim": {"micro_batch_tokens": 800},
        }
    )


@pytest.mark.parametrize("is_checkpointing", [False, True])
def test_rehearsal_is_what_real_tensors_take(
    micro_model: Path, tmp_path: Path, monkeypatch: MonkeyPatch, is_checkpointing: bool
):
    """The same counter around the same program, once with content and once without."""
    monkeypatch.setattr(head, "CHUNK_BYTES", {"cpu": 1 << 17, "meta": 1 << 17})
    # Small blocks: a mask of them is a number on a CPU and a bool elsewhere.
    monkeypatch.setattr(layout, "BLOCK", {"cpu": 32, "meta": 32})
    folder = save_qwen3(tmp_path / "m", micro_model, **SMALL)
    config = small_config(folder, is_checkpointing)
    chosen = {"adapter": "lora", "gradient_checkpointing": is_checkpointing}
    policy = micro_policy(folder, lora_r=4, **chosen)
    policy.has_plain_head = True
    real = peak_of_update(policy, config)
    model = ResolvedModel(str(folder), None, is_tiny=False)
    assert rehearse_update(config, model, CUDA, is_offline=True) == pytest.approx(real, rel=0.05)


def test_longer_micro_batches_take_more(micro_model: Path, tmp_path: Path):
    folder = save_qwen3(tmp_path / "m", micro_model, **SMALL)
    model = ResolvedModel(str(folder), None, is_tiny=False)
    config = small_config(folder, True)
    longer = config.model_copy(
        update={"optim": config.optim.model_copy(update={"micro_batch_tokens": 1600})}
    )
    both = [rehearse_update(one, model, CUDA, is_offline=True) for one in (config, longer)]
    assert both[1] > 1.3 * both[0]


@pytest.mark.parametrize(
    ("preset", "name"),
    [
        ("qwen3_4b_lora", QWEN3_4B),
        ("qwen3_4b_qlora", QWEN3_4B),
        ("qwen_small_4gb", QWEN3_06B),
    ],
)
def test_plan_and_rehearsal_of_the_presets_agree_within_a_tenth(preset: str, name: str):
    config = build_config(load_preset(preset))
    model = ResolvedModel(name, None, is_tiny=False)
    footprint = find_footprint(config.model, model, CUDA, is_offline=True)
    plan = predict(config, footprint, CUDA, Settings.of(config), available=None)
    rehearsed = rehearse_update(config, model, CUDA, is_offline=True)
    weights = plan.size_of("weights") + plan.size_of("adapters")
    assert weights + plan.phases["update"] == pytest.approx(rehearsed, rel=0.1)
    # Not only because the weights, which are counted, are most of it.
    assert plan.phases["update"] == pytest.approx(rehearsed - weights, rel=0.1)


def test_shapes_that_are_known_are_those_of_the_presets():
    assert {path.stem.replace("--", "/") for path in SHAPES.iterdir()} == {QWEN3_4B, QWEN3_06B}


def test_model_that_is_not_here_says_how_to_get_its_shape():
    model = ResolvedModel("nobody/nothing", None, is_tiny=False)
    with pytest.raises(PolicyError, match="hf download nobody/nothing config.json"):
        find_footprint(RunConfig().model, model, CUDA, is_offline=True)


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GB", 24 << 30), ("24", 24 << 30), (" 4.5 gb ", 9 << 29), ("8192MiB", 8 << 30)],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "24TB", "-3GB", "0"])
def test_what_is_no_size_is_refused(text: str):
    with pytest.raises(ConfigError, match="24GB"):
        parse_bytes(text)


class TestDryRunForAGpuElsewhere:
    @pytest.fixture
    def flags(self, micro_model: Path, tmp_path: Path) -> list[str]:
        folder = save_qwen3(tmp_path / "m", micro_model, **SMALL)
        return ["--model", str(folder), "--dry-run"]

    def test_verdict_is_last_and_settings_are_shown_if_asked_for(self, flags: list[str]):
        lines = succeed("train", *flags, "--gpu-memory", "24GB").stdout.splitlines()
        assert lines[-1].startswith("fits: ") and "of 23.4 GB," in lines[-1]
        assert "device: cuda" in lines and len(lines) < 20
        lines = succeed("train", *flags, "--gpu-memory", "24GB", "--details").stdout.splitlines()
        assert lines[0] == "tasks:" and lines[-1].startswith("# fits: ")
        assert any(line.startswith("# rehearsal: one update") for line in lines)

    def test_settings_of_the_verdict_fit(self, flags: list[str]):
        long = ["--set", "rollout.max_total_tokens=2000", "--set", "rollout.batch_size=2000"]
        words = [*flags, *long, "--gpu-memory", "1GB", "--json"]
        memory = json.loads(succeed("train", *words).stdout)["memory"]
        assert not memory["fits"] and memory["available"] == (1 << 30) - CUDA_CONTEXT
        remedy = memory["remedy"].removeprefix("It would fit with ").split()
        again = json.loads(succeed("train", *words, *remedy).stdout)["memory"]
        assert again["fits"] and again["remedy"] is None

    def test_auto_is_the_default_model_as_on_that_machine(self):
        found = json.loads(succeed("sft", "--dry-run", "--json").stdout)
        assert "memory" not in found
        lines = succeed("train", "--dry-run", "--model", QWEN3_06B, "--gpu-memory", "4GB",
                        "--set", "preset=qwen_small_4gb").stdout.splitlines()  # fmt: skip
        assert lines[-1].startswith("fits: ") and f"model: {QWEN3_06B}" in lines
        # Its weights are the business of the other machine.
        assert not [line for line in lines if line.startswith("warning: cannot get")]

    def test_flag_alone_and_beside_another_device_is_refused(self, flags: list[str]):
        alone = complaint("train", *flags[:2], "--gpu-memory", "24GB")
        assert "add --dry-run" in alone
        text = complaint("train", *flags, "--gpu-memory", "24GB", "--device", "cpu")
        assert "leave out --device cpu" in text

    def test_without_the_flag_this_machine_is_asked(self, flags: list[str]):
        text = succeed("train", *flags).stdout
        assert text.splitlines()[-1].startswith("fits: ") and "rehearsal" not in text


def test_rehearsal_that_disagrees_says_so():
    plan = MemoryPlan((), Settings(1, 1, False, "none"), 100)
    assert Outlook(plan, "").rehearsal is None
    assert "not possible (why)" in str(Outlook(plan, "", "why").rehearsal)
    assert "the larger one counts" in str(Outlook(plan, "", 50).rehearsal)
