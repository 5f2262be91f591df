"""`searchrl control`: sequences and compare, on runs of a small collection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from control_toy import play, write_toy
from gymnasium.spaces import flatten
from safetensors.torch import save
from searchrl_control.collections.judged import TEST, TRAIN
from searchrl_control.comparison.sequences import (
    list_sequences,
    means_of,
    numbers_of,
    play_sequences,
)
from searchrl_control.comparison.study import other_places, play_greedily, read_runs, sweep
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.training.folder import load_network, read_run
from searchrl_control.training.networks import Decided, space_of

from searchrl.cli import main

MODULE = "searchrl_control"


def call(*words: str, fails: bool = False) -> str:
    result = CliRunner().invoke(main, ["--plugin", MODULE, "control", *words])
    assert (result.exit_code != 0) is fails and "Traceback" not in result.output, result.output
    return result.output


def train(folder: Path, collections: list[dict[str, Any]], network: str, seed: int) -> Path:
    config = folder.parent / f"{folder.name}.json"  # JSON is YAML
    told = {"network": network, "envs": collections, "seed": seed, "max_steps": 2, "lr": 0.03}
    config.write_text(json.dumps({**told, "questions": 4, "group_size": 4}))
    call("train", "--config", str(config), "--run-dir", str(folder))
    return folder


@pytest.fixture(scope="module")
def places(toy: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Two collections in the set `heads`, three actions at most."""
    other = write_toy(tmp_path_factory.mktemp("places") / "other")
    return [
        {**toy, "collection": folder, "actions": "heads", "max_steps": 3}
        for folder in (toy["collection"], str(other))
    ]


@pytest.fixture(scope="module")
def runs(places: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds on both collections, and one run on the first."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        train(folder / "seed1", places, "linear", 1),
        train(folder / "seed2", places, "linear", 2),
        train(folder / "alone", places[:1], "gru", 1),
    ]


def test_comparison_of_seeds_by_hand(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    call("compare", str(runs[0]), str(runs[1]), "--out", str(out))
    told = json.loads(out.read_text("utf-8"))
    envs = {
        Path(one["collection"]).name: RetrievalControlEnv(**one)
        for one in read_runs(runs[:1], {})[1]
    }
    sequences = list_sequences(next(iter(envs.values())).actions, 3)
    means = means_of([play_sequences(env.world, TRAIN, sequences) for env in envs.values()])
    best = max(means, key=lambda name: means[name])
    assert told["sequences"] == len(sequences) == 1 + 6 + 6 * 7
    assert told["best"]["pooled"]["sequence"] == best

    # The best sequence is that of training questions, its row that of test questions.
    on_test = [play_sequences(env.world, TEST, sequences) for env in envs.values()]
    values = [v for of in on_test for v in of[best].values()]
    rows = told["tables"]["pooled"]
    assert rows["best fixed sequence"]["ndcg"]["value"] == pytest.approx(np.mean(values))
    assert rows["single pass"]["actions"] == {"Search": 0.5, "Terminate": 0.5}
    own = told["best"]["toy"]["sequence"]
    assert told["tables"]["toy"]["best of each collection"]["ndcg"]["value"] == pytest.approx(
        np.mean(list(on_test[0][own].values()))
    )

    # The checkpoint is chosen on training questions.
    for one in told["runs"]:
        figures = {c["step"]: c["train"]["ndcg"]["value"] for c in one["sweep"]}
        assert list(figures) == [0, 1, 2]
        assert one["checkpoint"] == max(figures, key=lambda name: figures[name])
    agents = [name for name in rows if name.startswith("agent")]
    assert len(agents) == 3 and agents[-1] == "agent, mean of 2 runs"
    mean = np.mean([rows[name]["ndcg"]["value"] for name in agents[:2]])
    assert rows[agents[-1]]["ndcg"]["value"] == pytest.approx(mean)
    assert rows[agents[-1]]["ndcg"]["n"] == rows["single pass"]["ndcg"]["n"] == len(values)
    against = told["against"][agents[0]]["best fixed sequence"]
    difference = rows[agents[0]]["ndcg"]["value"] - rows["best fixed sequence"]["ndcg"]["value"]
    assert against["pooled"]["value"] == pytest.approx(difference)
    assert set(told["tables"]) == {"pooled", "toy", "other"}
    assert {*told["tables"], "easy questions", "hard questions"} < set(against)


def stepwise(env: RetrievalControlEnv, network: Any) -> Any:
    """Decides one step of one episode at a time."""
    seen: list[torch.Tensor] = []

    def act(observation: Any, info: Any) -> int:
        if int(observation["step"]) == 0:
            seen.clear()
        seen.append(torch.from_numpy(flatten(env.observation_space, observation)).float())
        logits = network(torch.stack(seen)[None]).logits_BSA[0, -1]
        return int(torch.where(torch.tensor(info["action_mask"]).bool(), logits, -9e9).argmax())

    return act


def test_a_batch_of_questions_is_decided_as_in_episodes(
    runs: list[Path], places: list[dict[str, Any]]
) -> None:
    for path in runs[1:]:
        env = RetrievalControlEnv(**places[0])
        network = load_network(read_run(path), 2, space_of(env))
        played, _ = play_greedily(network, {"toy": env}, TEST)
        batched = [(one.question.removeprefix("toy/"), one.ndcg, one.actions) for one in played]
        assert batched == play(env, TEST, stepwise(env, network))


def stubborn(env: RetrievalControlEnv, **logits: float) -> Any:
    """The same logits whatever it sees; 0 for those that are not named."""
    told = torch.tensor([logits.get(name, 0.0) for name in env.action_names])
    return lambda seen: Decided(told.expand(*seen.shape[:2], -1), seen[..., 0])


def test_what_speaks_against_a_network_is_said(
    runs: list[Path], places: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = RetrievalControlEnv(**places[0])
    load = "searchrl_control.comparison.study.load_network"
    monkeypatch.setattr(load, lambda *of: stubborn(env, Terminate=5.0))
    assert all(one["choices"] == {"Terminate": 1} for one in sweep(read_run(runs[2]), {"toy": env}))
    said = call("compare", str(runs[2]))
    assert "warning: step 0 was chosen" in said
    assert "No gain over the best fixed sequence is shown." in said
    assert "warning: the agent plays one fixed sequence: Search, Terminate" in said


def test_a_collection_that_was_never_seen_has_what_was_chosen_on_others(
    runs: list[Path], places: list[dict[str, Any]], tmp_path: Path
) -> None:
    out, env = tmp_path / "figures.json", RetrievalControlEnv(**places[1])
    said = call("eval", str(runs[2]), "--collection", env.settings.collection, "--out", str(out))
    assert said.count("| policy |") == 1 and "best fixed sequence, other:" in said
    assert "single pass, hard questions:" in said and ", pooled:" not in said
    told = json.loads(out.read_text("utf-8"))
    assert set(told["best"]) == {"pooled", "toy"} and set(told["collections"]) == {"other"}
    fixed = told["best"]["pooled"]["sequence"]
    values = play_sequences(env.world, TEST, [numbers_of(env.actions, fixed)])[fixed]
    row = told["tables"]["other"]["best fixed sequence"]
    assert row["ndcg"]["value"] == pytest.approx(np.mean([*values.values()]))
    assert "--collection" in call("eval", str(runs[2]), fails=True)


def test_a_collection_of_a_run_keeps_its_draw() -> None:
    own = {"collection": "data/x", "train_share": 0.9, "actions": "heads"}
    found = other_places([own], ["moved/x", "y"])
    assert found == [{**own, "collection": "moved/x"}, {"collection": "y", "actions": "heads"}]


def test_runs_that_cannot_be_compared_are_refused(runs: list[Path], tmp_path: Path) -> None:
    assert "other settings" in call("compare", str(runs[0]), str(runs[2]), fails=True)
    assert "searchrl eval" in call("compare", str(tmp_path), fails=True)


def test_a_run_of_somebody_else_asks_nobody_and_its_text_is_shown_as_text(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    evil = {"endpoint_model": "m", "url": "http://127.0.0.1:9/evil"}
    for settings, fault in (
        ({"envs": [evil]}, "say that you mean it: --set env.url=ADDRESS"),
        ({"network": {"name": "\x1b[31mx"}}, "is damaged"),
    ):
        told = {"settings": settings, "space": {}}
        made = save({}, {"training": json.dumps(told)})
        (tmp_path / "checkpoints" / "step_000000.safetensors").write_bytes(made)
        for words in (("compare", str(tmp_path)), ("train", "--resume", str(tmp_path))):
            said = call(*words, fails=True)
            assert fault in said and "\x1b" not in said


def test_sequences_prints_what_a_policy_takes_as_its_start(
    places: list[dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "sequences.json"
    shared = [
        word
        for key in ("model", "cache", "actions", "max_steps")
        for word in ("--set", f"env.{key}={places[0][key]}")
    ]
    named = [word for one in places for word in ("--collection", str(one["collection"]))]
    said = call("sequences", *named, *shared, "--out", str(out))
    told = json.loads(out.read_text("utf-8"))
    assert told["sequences"] == 49
    best = told["best"]["pooled"]
    assert best["start"] == f"[{best['sequence'].removeprefix('Search').removeprefix(', ')}]"
    assert f"--set 'network.start={best['start']}'" in said
    assert best["ndcg"] == max(told["ndcg"]["pooled"].values())
    assert "learnable" in said and set(told["oracle"]["margins"]) == {"pooled", "toy", "other"}
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps({"envs": places}))
    again = call("sequences", "--config", str(config)).split("oracle over")
    assert len(again) == 2 and again[0] in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sequences", "--collection", "nowhere"), "there is no collection 'nowhere'"),
        (
            ("sequences", "--collection", "demo", "--set", "env.action=heads"),
            "did you mean 'actions'",
        ),
        (("sequences", "--collection", "demo", "--set", "optim.lr=1"), "optim = "),
        (("compare", "demo", "--set", "lr=1"), "--set lr…: expected a setting of the env"),
        (("compare", "demo", "--set", "env=1"), "--set env…: expected a setting of the env"),
        (("train",), "name a new folder with --run-dir"),
        (("train", "--resume", "demo", "--collection", "demo"), "only --set env.K=V may be added"),
    ],
)
def test_mistakes_are_said_before_anything_is_measured(words: tuple[str, ...], said: str) -> None:
    assert said.lower() in call(*words, fails=True).lower()


def test_two_collections_of_one_name_are_refused(toy: dict[str, Any], tmp_path: Path) -> None:
    twin = write_toy(tmp_path / "toy")
    words = ["--collection", str(toy["collection"]), "--collection", str(twin)]
    said = call("sequences", *words, "--set", f"env.model={toy['model']}", fails=True)
    assert "two collections are called 'toy'" in said
