"""Bad input: one message that says what is wrong, where, and what to do; never a traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import complaint

REPO = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ("--reward format+emm", ["emm", "'em'"]),
        ("--set optim.learning_rate=1e-4", ["unknown key 'optim.learning_rate'"]),
        ("--set rollout.grup_size=2", ["Did you mean 'group_size'"]),
        ("--set env.dificulty=hard", ["'dificulty'", "'difficulty'"]),
        (
            "--set retriever.title_wait=2",
            ["retriever 'bm25' has no setting 'title_wait'. Did you mean 'title_weight'?"],
        ),
        ("--set seed", ["expected KEY=VALUE"]),
        ("--set max_steps=many", ["max_steps"]),
        ("--policy robot", ["unknown policy 'robot'"]),
        ("--policy scripted:exprt", ["expert"]),
        ("--split tset", ["tset"]),
    ],
)
def test_wrong_values_are_named_before_any_episode(flags: str, parts: list[str]) -> None:
    text = complaint("eval", "--policy", "scripted", *flags.split())
    assert all(part in text for part in parts)
    assert "episode" not in text and "failed" not in text


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ("--model {}/nothing", ["does not exist", "'tiny'"]),
        ("--model {}", ["holds no policy"]),
        ("--model {}/damaged", ["cannot read '{}/damaged/config.json'"]),
        ("--model tiny --policy scripted", ["other policies have no weights"]),
        ("--model tiny --algorithm grop", ["'grpo'"]),
    ],
)
def test_dry_run_names_what_could_not_be_trained(tmp_path: Path, flags: str, parts: list[str]):
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{broken")
    text = complaint("train", "--dry-run", *flags.format(tmp_path).split())
    assert all(part.format(tmp_path) in text for part in parts)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("log.trackers=[{name: jsonl, path: []}]", "tracker 'jsonl': cannot use path"),
        ("algorithm.settings={window: 3}", "algorithm 'grpo' has no setting"),
    ],
)
def test_settings_of_trackers_and_algorithms_are_found_by_dry_run(
    micro_flags: list[str], setting: str, message: str
) -> None:
    assert message in complaint("train", *micro_flags, "--set", setting, "--dry-run")


@pytest.mark.parametrize("index", ["999999", "-1"])
def test_play_of_a_task_that_is_not_there_says_how_many_there_are(index: str) -> None:
    text = complaint("play", "--env", "corpus", "--index", index)
    assert re.match(rf"env 'corpus' has no task {index} in split 'test': its \d+ tasks are", text)


@pytest.mark.parametrize("command", ["train --dry-run", "train", "eval --num-tasks 1"])
def test_a_new_model_is_made_by_sft_only(command: str) -> None:
    text = complaint(*command.split(), "--model", "scratch")
    assert "only `searchrl sft` makes" in text and "--init-from" in text
    assert "hf download" not in text


def test_a_folder_that_is_no_run_is_not_to_be_resumed(tmp_path: Path, micro_flags: list[str]):
    (tmp_path / "notes.txt").write_text("mine")
    text = complaint("train", *micro_flags, "--run-dir", str(tmp_path))
    assert "not empty, and holds nothing to resume; choose another with --run-dir" in text
    assert "--resume" not in text


def test_existing_run_folder_is_never_written_into(micro_run: Path, micro_flags: list[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in micro_run.rglob("*")}
    text = complaint("train", *micro_flags, "--run-dir", str(micro_run))
    assert "exists already" in text and f"--resume {micro_run}" in text
    assert {path: path.stat().st_mtime_ns for path in micro_run.rglob("*")} == before


def test_resume_of_something_else(tmp_path: Path, micro_run: Path) -> None:
    assert "no run folder" in complaint("train", "--resume", str(tmp_path))
    text = complaint("train", "--resume", str(micro_run), "--lr", "1")
    assert "takes no --lr;" in text and "--init-from" in text


@pytest.mark.parametrize("flags", [["--seed", "0"], ["--max-steps", "0"], ["--beta", "0"]])
def test_resume_does_not_take_a_zero_for_nothing(micro_run: Path, flags: list[str]) -> None:
    text = complaint("train", "--resume", str(micro_run), "--lr", "0", *flags)
    assert "--lr" in text and f"{flags[0]}" in text and "takes no" in text


def test_resume_takes_no_plugin_before_the_command_either(micro_run: Path) -> None:
    """The run has its own: one that is named and not loaded would be missed much later."""
    plugin = str(REPO / "examples" / "03_my_plugin.py")
    text = complaint("--plugin", plugin, "train", "--resume", str(micro_run))
    assert "takes no --plugin;" in text
