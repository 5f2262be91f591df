"""What is done with a run of a network of choices afterwards: a command works, or says why not."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from command_line import complaint, succeed

from searchrl import Run, train

pytestmark = pytest.mark.thorough

ARMS = str(Path(__file__).parents[1] / "fixtures" / "arms.py")
FLAGS = ("--plugin", ARMS, "--env", "arms")
FEW = ("--num-tasks", "4")
SMALL = ("--group-size", "2", "--set", "rollout.prompts_per_step=2", "--set", "eval.num_tasks=2")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A network that has learned: it earns 1 where a new one does not."""
    return train(
        {
            "env": "arms",
            "policy": {"name": "mlp", "hidden": [16]},
            "plugins": [ARMS],
            "algorithm": {"beta": 0},
            "optim": {"lr": 0.02, "warmup_steps": 0},
            "rollout": {"prompts_per_step": 8, "group_size": 16},
            "eval": {"num_tasks": 4, "every": 0},
            "checkpoint": {"every": 6},
            "max_steps": 12,
            "run_dir": str(tmp_path_factory.mktemp("choices") / "run"),
        }
    )


def said_by(*words: object) -> str:
    return " ".join(complaint(*words).split())


def reward_of(text: str) -> float:
    value = json.loads(text)["reward"]["value"]
    assert isinstance(value, float)
    return value


# --- doctor ------------------------------------------------------------------------------------
def test_the_doctor_looks_at_a_run_and_at_flags(run: Run) -> None:
    for words in ((run.path,), (*FLAGS, "--policy", "gru", "--beta", "0")):
        found = json.loads(succeed("doctor", *words, "--json").stdout)
        states = {one["name"]: one["state"] for one in found["checks"]}
        assert found["is_good"] and states["ratio"] == states["gradients"] == "passed"
        assert states["reference"] == "not applicable"


def test_training_says_what_was_checked_before_it(tmp_path: Path) -> None:
    flags = (*FLAGS, "--policy", "mlp", "--beta", "0", "--max-steps", "1", *SMALL)
    said = succeed("train", *flags, "--run-dir", tmp_path / "run").stdout
    assert "start-up checks: 7 passed" in said


# --- export and push ---------------------------------------------------------------------------
def test_an_export_plays_as_the_run_does(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    said = succeed("export", run.path, folder).stdout
    assert "a network of choices, for SearchRL" in said
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md", "policy.json", "weights.safetensors",
    ]  # fmt: skip
    (following,) = (line for line in said.splitlines() if line.startswith("Next:"))
    words = shlex.split(following.removeprefix("Next:"))
    assert words[0] == "searchrl" and f"init_from={folder}" in words
    again = succeed(*words[1:], *FEW, "--json", "--trust").stdout
    assert reward_of(again) == run.summary["after"]["reward"]["value"] > 0.9


def test_the_card_of_a_network_is_no_card_of_a_language_model(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    succeed("export", run.path, folder)
    card = (folder / "README.md").read_text("utf-8")
    assert "pipeline_tag: reinforcement-learning" in card and "library_name: searchrl" in card
    assert "- 0: `look`" in card and "transformers" not in card.partition("## Training")[0]
    assert "</act>" not in card and "system prompt" not in card
    (line,) = (line for line in card.splitlines() if line.startswith("searchrl eval "))
    words = [str(folder) if word == "." else word for word in shlex.split(line)[1:]]
    words = [word.replace("init_from=.", f"init_from={folder}") for word in words]
    assert reward_of(succeed(*words, "--plugin", ARMS, *FEW, "--json").stdout) > 0.9
    assert str(run.path.parent) not in card


def test_a_checkpoint_of_a_network_is_exported_too(run: Run, tmp_path: Path) -> None:
    step = run.path / "checkpoints" / "step_000006"
    succeed("export", step, tmp_path / "six")
    weights = "weights.safetensors"
    assert (tmp_path / "six" / weights).read_bytes() == (step / "policy" / weights).read_bytes()
    assert "weights of step 6" in (tmp_path / "six" / "README.md").read_text("utf-8")


def test_there_is_no_adapter_in_a_network(run: Run, tmp_path: Path) -> None:
    said = said_by("export", run.path, tmp_path / "one", "--base", "me/base")
    assert "--base names the base of an adapter" in said
    merged = succeed("export", run.path, tmp_path / "two", "--merge").stdout
    assert "there is no adapter to merge" in merged


def test_a_push_says_how_it_is_fetched(run: Run) -> None:
    said = succeed("push", run.path, "me/arms", "--dry-run").stdout
    assert "hf download me/arms --local-dir arms" in said and "init_from=arms" in said


# --- eval --------------------------------------------------------------------------------------
def test_two_runs_of_networks_are_compared(run: Run, tmp_path: Path) -> None:
    new = train(
        {**run.config.to_dict(), "max_steps": 0, "run_dir": str(tmp_path / "new"), "seed": 3}
    )
    found = json.loads(succeed("eval", run.path, "--against", new.path, "--json").stdout)
    assert found["reward"]["value"] > 0.9 > found["against"]["reward"]["value"]
    assert found["against"]["policy"] == f"network 'mlp' from {new.path / 'policy'}"


def test_a_model_is_compared_with_a_run_of_a_network(run: Run) -> None:
    words = ("--model", "tiny", "--against", run.path, "--num-tasks", "1")
    assert "task by task" in succeed("eval", *FLAGS, *words).stdout


def test_a_model_beside_a_network_is_refused(run: Run) -> None:
    said = said_by("eval", run.path, "--model", "tiny")
    assert "is a network of choices and uses no model" in said and "--against tiny" in said


@pytest.mark.parametrize("command", ["train", "eval", "doctor", "bench"])
def test_a_network_is_no_model(command: str, run: Run) -> None:
    for named in (run.path, run.path / "policy", run.path / "checkpoints" / "step_000006"):
        said = said_by(command, *FLAGS, "--model", named)
        assert "holds a network of choices (policy 'mlp')" in said
        assert "--policy mlp --init-from" in said


# --- training again ----------------------------------------------------------------------------
def test_a_run_begins_with_the_network_of_another(run: Run, tmp_path: Path) -> None:
    flags = (*SMALL, "--init-from", run.path, "--max-steps", "0", "--run-dir", tmp_path / "again")
    succeed("train", *flags, "--trust")
    again = Run.open(tmp_path / "again")
    assert again.config.policy == run.config.policy
    assert again.summary["before"]["reward"]["value"] == 1.0


def test_a_language_model_cannot_begin_with_a_network(run: Run, tmp_path: Path) -> None:
    flags = ("--init-from", run.path, "--policy", "model", "--run-dir", tmp_path / "again")
    assert "holds a network of choices" in said_by("train", *FLAGS, *flags)


def test_sft_trains_language_models(run: Run, tmp_path: Path) -> None:
    said = said_by("sft", *FLAGS, "--policy", "mlp", "--run-dir", tmp_path / "run")
    assert "`searchrl sft` trains language models" in said
    assert "searchrl train --policy mlp" in said


# --- other commands ----------------------------------------------------------------------------
def test_the_speed_of_a_network_is_measured() -> None:
    flags = (*FLAGS, "--policy", "mlp", "--steps", "1", *SMALL)
    found = json.loads(succeed("bench", *flags, "--json").stdout)
    assert found["model"] == "network 'mlp'" and found["rollouts_per_s"] > 0


def test_a_network_answers_no_questions(run: Run) -> None:
    said = said_by("ask", run.path, "where is it?")
    assert "chooses actions by number" in said and "searchrl eval" in said


def test_its_episodes_are_scored_again_and_listed(run: Run) -> None:
    assert "env against recorded" in succeed("score", run.path, "--reward", "env").stdout
    assert "arms" in succeed("runs", run.path.parent).stdout


def test_inspect_writes_a_page_of_choices(run: Run) -> None:
    """What it shows is tested in tests/report/test_choice_page.py."""
    succeed("inspect", run.path)
    data = "".join(p.read_text("utf-8") for p in (run.path / "report").rglob("*.js"))
    assert '"probs":{"look":1.0}' in data.replace(" ", "")
