"""What an author does after the first file: train, start from a run, repeat one, change the code.

Every line that a command prints to try is pasted here, with a few flags that make it small.
"""

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import MICRO_SETTINGS, succeed
from train_toy import assert_same_learning

from searchrl.run_folder import Run

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("threads_restored")]

MINE = Path(__file__).parents[1] / "fixtures" / "mine.py"
TASK = ("--env", "mine", "--set", "env.colour=blue", "--set", "retriever.k1=1.1")
SMALL = [part for setting in MICRO_SETTINGS for part in ("--set", setting)]
LONG = ("--set", "rollout.max_turn_tokens=400", "--set", "rollout.max_total_tokens=2048")
STAGE = ("--set", "sft.stages=[{steps: 1, batch_size: 2}]")


@pytest.fixture
def plugin(own_folder: Path) -> Path:
    path = own_folder / "my plugin.py"
    shutil.copy(MINE, path)
    return path


def tries(stdout: str) -> list[list[str]]:
    """The command lines below `try`, as words without the program's name."""
    lines = stdout.splitlines()
    (start,) = [i for i, line in enumerate(lines) if line.startswith("try  ")]
    found = [shlex.split(line.removeprefix("try")) for line in lines[start:]]
    assert all(words[0] == "searchrl" for words in found), found
    return [words[1:] for words in found]


def paste(words: Sequence[str], micro_model: Path) -> None:
    if words[0] in ("train", "bench"):
        steps = () if "--max-steps" in words else ("--max-steps", "1")
        named = ("tiny", "Qwen/Qwen3-0.6B")
        model = [str(micro_model) if word in named else word for word in words]
        succeed(*model, *SMALL, *steps)
    elif words[0] == "eval" and "scripted" not in words:
        succeed(*words, "--num-tasks", "2", "--no-forced")
    else:
        succeed(*words)


def test_the_lines_to_try_after_sft_and_train_run_as_they_are(
    plugin: Path, micro_model: Path
) -> None:
    cold = succeed(
        "sft", "--plugin", plugin, *TASK, "--model", micro_model, *SMALL, *LONG, *STAGE,
        "--run-dir", "runs/a cold start",
    )  # fmt: skip
    lines = tries(cold.stdout)
    assert ["train", "--init-from", "runs/a cold start"] in lines
    assert [words[0] for words in lines] == ["inspect", "train", "ask", "eval", "eval"]
    for words in lines:
        paste(words, micro_model)
    (made,) = [path for path in Path("runs").iterdir() if path.name.startswith("mine-")]
    (task,) = Run.open(made).config.tasks
    assert task.env.settings == {"colour": "blue"}
    assert (task.retriever.name, task.retriever.settings) == ("finder", {"k1": 1.1})
    assert Run.open(made).config.plugins == [str(plugin)]
    assert Run.open(made).config.model.adapter == "full"
    trained = succeed("train", "--init-from", made, "--max-steps", "1", *SMALL, "--run-dir", "b")
    lines = tries(trained.stdout)
    assert [words[0] for words in lines] == ["inspect", "ask", "eval", "eval"]
    for words in lines:
        paste(words, micro_model)


@pytest.mark.parametrize("kind", "env reward group_reward retriever algorithm tracker".split())
def test_the_lines_of_new_run_as_they_are(kind: str, own_folder: Path, micro_model: Path) -> None:
    lines = json.loads(succeed("new", kind, "spread", "--json").stdout)["next"]
    assert lines[0] == "pytest spread.py"
    for line in lines[1:]:
        paste(shlex.split(line)[1:], micro_model)


def test_the_config_of_a_run_repeats_it_and_serves_eval_and_play(
    plugin: Path, micro_model: Path
) -> None:
    flags = ("--plugin", plugin, *TASK, "--model", micro_model, *SMALL, "--max-steps", "2")
    succeed("train", *flags, "--seed", "3", "--run-dir", "first")
    succeed("train", "--config", "first/config.yaml", "--run-dir", "second")
    assert_same_learning(Run.open("first"), Run.open("second"))
    assert Run.open("first").config.fingerprint == Run.open("second").config.fingerprint
    # Without a folder it gets a new one, not that of the first.
    succeed("train", "--config", "first/config.yaml")
    assert len([path for path in Path("runs").iterdir()]) == 1
    succeed("eval", "--config", "first/config.yaml", "--num-tasks", "2")
    succeed("play", "--config", "first/config.yaml", "--index", "0", typed="a 1\n")
