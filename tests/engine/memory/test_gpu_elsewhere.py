"""Plans for a GPU on another machine, from the shape of a model alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from command_line import complaint, succeed
from qwen3_toy import SMALL, save_qwen3

from searchrl.config import RunConfig
from searchrl.engine.memory.footprint import SHAPES, find_footprint
from searchrl.engine.memory.plan import parse_bytes
from searchrl.engine.model.loading import ResolvedModel
from searchrl.errors import ConfigError, PolicyError

pytestmark = pytest.mark.thorough

CUDA = torch.device("cuda")
QWEN3_4B, QWEN3_06B = "Qwen/Qwen3-4B", "Qwen/Qwen3-0.6B"


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

    def test_flag_alone_and_beside_another_device_is_refused(self, flags: list[str]):
        alone = complaint("train", *flags[:2], "--gpu-memory", "24GB")
        assert "add --dry-run" in alone
        text = complaint("train", *flags, "--gpu-memory", "24GB", "--device", "cpu")
        assert "leave out --device cpu" in text
