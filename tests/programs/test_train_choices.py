"""`train`, `eval` and resume with a policy without tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, succeed
from reseal import unfinish

from searchrl import Run, evaluate, train
from searchrl.config import build_config
from searchrl.engine.episodes.world import make_worlds
from searchrl.errors import ConfigError, RunFolderError
from searchrl.plugins import load_plugins

pytestmark = pytest.mark.thorough

ARMS = str(Path(__file__).parents[1] / "fixtures" / "arms.py")
SETTINGS: dict[str, Any] = {
    "env": "arms",
    "policy": {"name": "mlp", "hidden": [16]},
    "plugins": [ARMS],
    "algorithm": {"beta": 0},
    "optim": {"lr": 0.02, "warmup_steps": 0},
    "rollout": {"prompts_per_step": 8, "group_size": 16},
    "eval": {"num_tasks": 16, "every": 0},
    "checkpoint": {"every": 4, "keep_last": 8},
    "max_steps": 12,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("choices") / "run"
    return train({**SETTINGS, "run_dir": str(folder)})


def test_a_network_learns_what_no_fixed_sequence_does(run: Run) -> None:
    """Left and right are right equally often: a fixed sequence earns at most 0.5."""
    assert run.summary["after"]["reward"]["value"] > 0.9
    rows = [row for row in run.metrics if row["phase"] == "train"]
    assert len(rows) == 12 and {row.get("max_abs_log_ratio", 0.0) for row in rows} == {0.0}


def test_the_run_folder_has_the_network_and_what_it_is(run: Run) -> None:
    described = json.loads((run.path / "policy" / "policy.json").read_text("utf-8"))
    assert (described["name"], described["settings"]) == ("mlp", {"hidden": [16]})
    assert described["space"]["actions"] == ["look", "left", "right"]
    row = next(run.rollouts("train"))
    assert row["ids"][0] == 0 and row["authors"] == "M" * len(row["ids"])
    assert row["generated_text"].startswith("look → ")
    record = next(p for p in run.provenance["plugins"] if p["file"] == ARMS)
    assert record["names"]["policy"] == ["gru"]


def test_tensorboard_has_the_shares_of_actions(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    few = {"max_steps": 2, "eval": {"num_tasks": 2, "every": 2, "num_tasks_during": 4}}
    settings = {**SETTINGS, **few, "log": {"trackers": ["tensorboard"]}}
    made = train({**settings, "run_dir": str(tmp_path / "run")})
    events = EventAccumulator(str(made.path / "tensorboard")).Reload()
    rows = [row for row in made.metrics if row["phase"] == "train"]
    for name in ("action/look", "action/left", "free_action/right", "least_action_p"):
        points = events.Scalars(f"train/{name}")
        assert [point.step for point in points] == [1, 2]
        assert [p.value for p in points] == pytest.approx([row[name] for row in rows])
    assert events.Scalars("eval/action/look")


def test_its_rows_say_what_was_legal_seen_and_how_probable(run: Run) -> None:
    rows = list(run.rollouts("after"))
    assert all(list(row["choices"][0]["probs"]) == ["look"] for row in rows)
    assert all(row["choices"][0]["seen"] for row in rows)
    last = [row["choices"][-1]["probs"] for row in rows]
    assert {tuple(probs) for probs in last} == {("look", "left", "right")}


def test_the_summary_states_that_no_action_was_lost(run: Run) -> None:
    for measured in (run.summary["before"], run.summary["after"]):
        assert measured["least_action_p"]["value"] > 0
        assert {"action/left", "free_action/left", "ending_choices", "turns"} <= set(measured)
        assert "format" not in measured
    assert run.alarms == [] or {one["alarm"] for one in run.alarms} == {"dead_groups"}


def test_the_run_says_how_many_episodes_a_checkpoint_is(tmp_path: Path) -> None:
    flags = ("--set", "rollout.prompts_per_step=4", "--set", "rollout.group_size=5")
    flags += ("--set", "checkpoint.every=50", "--set", "eval.num_tasks=2", "--max-steps", "1")
    said = succeed(
        *("train", "--plugin", ARMS, "--env", "arms", "--policy", "mlp", *flags),
        *("--set", "algorithm.beta=0", "--run-dir", tmp_path / "run"),
    ).output
    assert "checkpoint every 50 steps, 1,000 episodes" in said
    step = next(line for line in said.splitlines() if line.startswith("step 1/1"))
    assert "chooses look " in step and " %, left " in step and "episodes_per_s" in step
    assert "  choices   look → " in said
    for word in ("token", "answer", "format"):
        assert word not in said


def test_a_stopped_run_goes_on_bit_for_bit(run: Run, tmp_path: Path) -> None:
    short = train({**SETTINGS, "max_steps": 12, "run_dir": str(tmp_path / "short")} | {})
    for step in (8, 12):
        (short.path / "checkpoints" / f"step_{step:06d}").rename(tmp_path / f"gone_{step}")
    unfinish(short.path)
    resumed = train(resume=short.path)
    same = "policy/weights.safetensors"
    assert (resumed.path / same).read_bytes() == (run.path / same).read_bytes()
    assert resumed.summary["after"] == run.summary["after"]


def test_it_is_evaluated_with_its_own_settings(run: Run) -> None:
    said = json.loads(succeed("eval", run.path, "--json").stdout)
    assert said["reward"]["value"] == run.summary["after"]["reward"]["value"]
    again = train({**SETTINGS, "policy": "mlp", "max_steps": 0, "run_dir": None} | {
        "policy": SETTINGS["policy"], "init_from": str(run.path), "run_dir": f"{run.path}-again",
    })  # fmt: skip
    assert again.summary["before"]["reward"] == run.summary["after"]["reward"]


def test_a_model_in_words_plays_the_same_environment() -> None:
    result = evaluate({"env": "arms", "plugins": [ARMS], "model": "tiny", "eval": {"num_tasks": 1}})
    (rollout,) = result.rollouts
    assert "which arm of test 0?" in rollout.episode.task.question


def test_a_model_in_words_has_as_many_turns_as_a_network_has_choices() -> None:
    config = build_config({"env": "arms", "plugins": [ARMS], "policy": "model"})
    (world,) = make_worlds(config, load_plugins([ARMS], entry_points=False))
    env: Any = world.ask(lambda env: env)
    assert env.max_turns == env.inner.max_choices == 5
    env.reset(seed=0)
    ends = [env.step("<act>jump</act>")[3] for _ in range(5)]
    assert ends == [False] * 4 + [True]


def test_a_dry_run_says_what_would_be_trained() -> None:
    flags = ("--plugin", ARMS, "--env", "arms", "--policy", "mlp", "--dry-run")
    said = succeed("train", *flags).stdout
    assert "model: network 'mlp'" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--env", "regulations", "--policy", "mlp"), "a turn of env 'regulations' is text"),
        (("--env", "arms", "--policy", "mpl"), "Did you mean 'mlp'?"),
        (("--env", "arms", "--policy", "mlp", "--set", "policy.hiden=[3]"), "no setting 'hiden'"),
        (("--env", "arms", "--policy", "mlp", "--init-from", "tiny"), "no network of choices"),
    ],
)
def test_what_does_not_fit_is_said(flags: tuple[str, ...], said: str, tmp_path: Path) -> None:
    text = complaint("train", "--plugin", ARMS, *flags, "--run-dir", tmp_path / "run")
    assert said in text.replace("\n", " ")


def test_a_network_cannot_start_from_another_one(run: Run, tmp_path: Path) -> None:
    other = {"policy": "gru", "init_from": str(run.path), "run_dir": str(tmp_path / "new")}
    with pytest.raises(ConfigError, match="holds policy 'mlp' for"):
        train({**SETTINGS, **other})


def test_a_network_of_another_width_is_refused(run: Run, tmp_path: Path) -> None:
    other = {"policy": {"name": "mlp", "hidden": [8]}, "init_from": str(run.path)}
    with pytest.raises(RunFolderError, match=r"shape \(16, 9\), .* \(8, 9\): .* other settings"):
        train({**SETTINGS, **other, "run_dir": str(tmp_path / "new")})
