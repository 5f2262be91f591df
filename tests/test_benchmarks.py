"""Every benchmark runs at a tiny size, compares, and writes its JSON with the ratio in it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
TINY = ["--prompts", "2", "--tokens", "4", "--rounds", "1"]

needs_trl = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None, reason="needs searchrl[bench]"
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(script: str, folder: Path, *args: str) -> tuple[dict[str, Any], str]:
    path = folder / "result.json"
    process = subprocess.run(
        [sys.executable, str(FOLDER / script), *args, "--json", str(path)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parent)},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    result = json.loads(path.read_text("utf-8"))
    assert {"date", "cores", "torch", "transformers"} <= result["machine"].keys()
    assert "| ---" in process.stdout or "| -" in process.stdout
    return result, process.stdout


@needs_trl
def test_step(tmp_path: Path) -> None:
    args = [*TINY, "--group-size", "2", "--prompt-tokens", "16", "--memory"]
    result, shown = run("bench_step.py", tmp_path, *args)
    assert result["ratio"] == pytest.approx(result["trl"]["wall_s"] / result["ours"]["wall_s"])
    assert f"{result['ratio']:.2f} times" in shown and result["num_model_tokens"] == 2 * 2 * 4
    # Each side alone: what the other imports is not in its peak.
    assert 1 << 26 < result["ours_peak_bytes"] < result["trl_peak_bytes"]


@needs_trl
def test_turns(tmp_path: Path) -> None:
    sizes = ["--group-size", "2", "--prompt-tokens", "16", "--observation-tokens", "8"]
    result, _ = run("bench_turns.py", tmp_path, *TINY, *sizes, "--turns", "1", "3")
    assert result["ratio"].keys() == {"1", "3"} and result["loop_over_trl"] > 0
    # Four episodes of two prompts: the loop reads every prompt in every turn of every episode.
    assert result["turns"]["3"]["loop_prefill"] == 4 * (16 + (16 + 12) + (16 + 24))
    # All but the last token of a prompt, and every observation as long as it is.
    assert result["turns"]["1"]["ours_prefill"] == 2 * 15
    assert result["turns"]["3"]["ours_prefill"] == 2 * 15 + 4 * 2 * 8


def test_scaling(tmp_path: Path) -> None:
    small = ["--hidden", "32", "--layers", "1", "--values", "2"]
    axes = ["--axis", "group", "--axis", "slots"]
    result, _ = run("bench_scaling.py", tmp_path, *TINY, *small, *axes)
    groups = result["axes"]["group"]
    # Two prompts of 64 tokens (all but the last are read ahead), whatever the group's size.
    prompts = [row["prefill"] - 2 * row["value"] * 32 for row in groups]
    assert prompts == [2 * 63, 2 * 63]
    assert [row["trained"] for row in groups] == [2 * (64 + n * (2 * 4 + 32 - 1)) for n in (2, 4)]
    assert [row["value"] for row in result["axes"]["slots"]] == [8, 16] and result["ratio"] > 0


def test_gpu_script_on_a_micro_model(tmp_path: Path) -> None:
    args = ["--shape", "micro", "--device", "cpu", "--threads", "1"]
    result, _ = run("bench_gpu.py", tmp_path, *args)
    assert "step W" in result["figures"] and result["figures"]["step W"]["ours"]["of_limit"] > 0
    assert "decode, continuous batching" in result["skipped"]
    if importlib.util.find_spec("trl") is not None:
        assert result["ratio"] > 0


def test_learner(tmp_path: Path) -> None:
    args = ["--model", "4x128", "--groups", "1", "--rounds", "1"]
    path = tmp_path / "rows.json"
    script = [sys.executable, str(FOLDER / "bench_learner.py"), *args, "--json", str(path)]
    env = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    subprocess.run(script, check=True, capture_output=True, env=env)
    assert json.loads(path.read_text("utf-8"))[0]["packed_tokens"] > 0


def test_latency(tmp_path: Path) -> None:
    """Waits overlap, and every side samples the same bytes."""
    sizes = ["--episodes", "8", "--group-size", "4", "--rounds", "1", "--latency-ms", "50"]
    result, _ = run("bench_latency.py", tmp_path, *sizes)
    kinds = {"env", "retriever", "reward"}
    assert result["ratio"].keys() == result["waits"].keys() == kinds
    assert result["is_equal"] == dict.fromkeys(kinds, True)
    for kind, ratio in result["ratio"].items():
        taken = result["times"][kind]["wall_s"] - result["waits"][kind] * 0.05
        assert ratio == pytest.approx(taken / result["times"]["none"]["wall_s"])
    assert result["fewest_searches"] >= 2


def test_checks(tmp_path: Path) -> None:
    args = ["--prompts", "2", "--group-size", "2", "--rounds", "2"]
    result, shown = run("bench_checks.py", tmp_path, *args)
    # Inside the check some time is spent, and far from all of it.
    assert 0 < result["share"] < 0.5 and result["start_s"] > 0
    assert result["is_within"] == (result["share"] <= result["limit"] == 0.02)
    assert len(result["plain"]["walls"]) == len(result["checked"]["walls"]) == 2
    assert f"inside the check {result['share']:.2%}" in shown


@pytest.mark.skipif(shutil.which("chromedriver") is None, reason="no Chromium with chromedriver")
def test_report(tmp_path: Path) -> None:
    sys.path.insert(0, str(FOLDER.parent / "tests" / "report"))
    from stored_run import write_run

    folder = write_run(tmp_path / "run")
    args = [str(folder), "--rollouts", "250", "--rounds", "1"]
    result, _ = run("bench_report.py", tmp_path, *args)
    assert result["num_rollouts"] == 250
    assert 0 < result["rollout_s"] < result["index_s"] < 10
