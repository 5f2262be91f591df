"""Every benchmark runs at a tiny size, compares, and writes its JSON with the ratio in it."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
TINY = "--prompts 2 --tokens 4 --rounds 1 "
HAS_TRL = find_spec("trl") is not None
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(script: str, folder: Path, *args: str) -> tuple[Any, str]:
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
    return json.loads(path.read_text("utf-8")), process.stdout


@pytest.mark.skipif(not HAS_TRL, reason="needs searchrl[bench]")
def test_turns_are_read_once_and_the_loop_reads_all_again(tmp_path: Path) -> None:
    sizes = "--group-size 2 --prompt-tokens 16 --observation-tokens 8 --turns 1 3"
    result, shown = run("bench_turns.py", tmp_path, *(TINY + sizes).split())
    assert result["ratio"].keys() == {"1", "3"} and result["loop_over_trl"] > 0 and "|" in shown
    # Four episodes of two prompts: the loop reads every prompt in every turn of every episode.
    assert result["turns"]["3"]["loop_prefill"] == 4 * (16 + (16 + 12) + (16 + 24))
    # All but the last token of a prompt, and every observation as long as it is.
    assert result["turns"]["3"]["ours_prefill"] == 2 * 15 + 4 * 2 * 8


@pytest.mark.parametrize(
    ("script", "words", "key"),
    [
        pytest.param(
            "bench_step.py", TINY + "--group-size 2 --prompt-tokens 16", "ratio",
            marks=pytest.mark.skipif(not HAS_TRL, reason="needs searchrl[bench]"),
        ),
        ("bench_scaling.py", TINY + "--hidden 32 --layers 1 --values 2 --axis slots", "ratio"),
        ("bench_learner.py", "--model 4x128 --groups 1 --rounds 1", ""),
        ("bench_latency.py", "--episodes 8 --group-size 4 --rounds 1 --latency-ms 50", "ratio"),
        ("bench_checks.py", "--prompts 2 --group-size 2 --rounds 2", "share"),
        ("bench_window.py", "--lengths 1408 --rounds 1", "ratio"),
        pytest.param(
            "bench_tree.py", "--prompts 1 --leaves 2 --tokens 2 --rounds 1", "ratio",
            marks=pytest.mark.skipif(not find_spec("searchrl_credit"), reason="needs the package"),
        ),
    ],
)  # fmt: skip
def test_it_runs_and_says_what_it_measured(
    script: str, words: str, key: str, tmp_path: Path
) -> None:
    result, shown = run(script, tmp_path, *words.split())
    assert result[key] if key else result[0]["packed_tokens"] > 0
    assert "|" in shown or not key


@pytest.mark.smoke
def test_gpu_report_goes_on_and_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--shape micro --device cpu --threads 1".split()
    first, _ = run("gpu_report.py", tmp_path, *words)
    parts = first["parts"]
    assert list(parts) == ["limits", "decode", "prefill", "train", "memory", "main", "step"]
    assert all(part["is_whole"] and part["figures"] for part in parts.values())
    missing = {name for part in parts.values() for name in part["skipped"]}
    assert missing <= {"step trl", "step trl+vllm"}
    assert HAS_TRL or "No module named" in parts["step"]["skipped"]["step trl"]
    assert parts["main"]["figures"].keys() == {"main job", "main job before", "main job after"}
    # Killed in `decode`: that part is measured again, the others are kept.
    parts["decode"]["is_whole"] = False
    (tmp_path / "result.json").write_text(json.dumps(first), "utf-8")
    again, _ = run("gpu_report.py", tmp_path, *words)
    changed = {name for name, part in again["parts"].items() if part != parts[name]}
    assert changed == {"decode"} and again["parts"]["decode"]["is_whole"]
    monkeypatch.syspath_prepend(FOLDER)
    from gpu_report import compare

    capsys.readouterr()
    again["parts"]["limits"]["figures"]["limits copy"]["value"] *= 2
    compare(again, first, "other")
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "limits copy" in line]
    assert row.split("|")[-2].strip() == "2"


@pytest.mark.skipif(shutil.which("chromedriver") is None, reason="no Chromium with chromedriver")
def test_report(tmp_path: Path) -> None:
    sys.path.insert(0, str(FOLDER.parent / "tests" / "report"))
    from stored_run import write_run

    folder = write_run(tmp_path / "run")
    result, _ = run("bench_report.py", tmp_path, str(folder), *"--rollouts 250 --rounds 1".split())
    assert 0 < result["rollout_s"] < result["index_s"] < 10


def test_controls_are_run_once_and_printed_again(tmp_path: Path) -> None:
    script = [sys.executable, str(FOLDER / "controls.py"), "--out", str(tmp_path / "out")]
    tiny = "max_steps=1 eval.num_tasks=4 rollout.prompts_per_step=2 rollout.group_size=2"
    sets = [word for one in tiny.split() for word in ("--set", one)]
    only = ["regulations", "--only", "trained", "lr 0", *sets]
    first = subprocess.run([*script, *only], capture_output=True, text=True, check=True).stdout
    table = [line for line in first.splitlines() if line.startswith("| regulations")]
    assert [row.split(" | ")[1] for row in table] == ["trained", "trained, random passages", "lr 0"]
    assert "| +0.000 [" in table[2], "the rate 0 changes no answer"
    again = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert again.splitlines()[2:] == table
