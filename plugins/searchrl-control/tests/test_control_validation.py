"""The experiment that chose the network: its tables are the environment, and training learns."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from searchrl_control.comparison.playing import act_fixed, play
from searchrl_control.comparison.sequences import name_of, play_sequences
from searchrl_control.environment.actions import HEADS
from searchrl_control.environment.env import MAX_STEPS, RetrievalControlEnv
from searchrl_control.policies.space import row_of, space_of

from searchrl import DataError

_FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def scripts() -> Any:
    """The two scripts, which find each other in their folder: the tables and the experiment."""
    sys.path.insert(0, str(_FOLDER))
    try:
        spec = importlib.util.spec_from_file_location(
            "control_cross_validate", _FOLDER / "cross_validate.py"
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(_FOLDER))
    return sys.modules["position_tables"], module


@pytest.fixture(scope="module", params=["demo", "toy"])
def env(request: pytest.FixtureRequest, toy: dict[str, Any]) -> RetrievalControlEnv:
    """The made-up collection, and a smaller one where actions run out of passages."""
    settings = toy | ({"collection": "demo"} if request.param == "demo" else {})
    return RetrievalControlEnv(**settings, actions=HEADS)


@pytest.fixture(scope="module")
def pool(env: RetrievalControlEnv, scripts: Any) -> Any:
    tables, _ = scripts
    return tables.join({"it": tables.build_table(env.world, "train")})


def test_a_sequence_is_worth_what_the_environment_gives(
    env: RetrievalControlEnv, pool: Any, scripts: Any
) -> None:
    tables, _ = scripts
    sequences, worth_QS = tables.value_sequences(pool)
    assert len(sequences) == 1 + 6 * (1 + 7 + 7**2 + 7**3)
    rng = np.random.default_rng(0)
    drawn = [0, *rng.choice(len(sequences), 150, replace=False).tolist()]
    expected = play_sequences(env.world, "train", [sequences[place] for place in drawn])
    for place in drawn:
        by_id = expected[name_of(env.actions, sequences[place])]
        assert worth_QS[:, place].tolist() == pytest.approx([by_id[one] for one in pool.ids_Q])
    for place in drawn[:5]:
        played = play(env, "train", act_fixed(env.actions, sequences[place]))
        assert worth_QS[:, place].tolist() == pytest.approx([one.ndcg for one in played])
    assert worth_QS.std(axis=1).max() > 0.1


def test_a_position_shows_what_the_environment_shows(
    env: RetrievalControlEnv, pool: Any, scripts: Any
) -> None:
    """Along one path: every block that a network reads here, which actions are legal, the list."""
    tables, _ = scripts
    space, rng = space_of(env), np.random.default_rng(1)
    for index in range(env.num_tasks("train")):
        env.reset(options={"split": "train", "index": index})
        shown, _, _, _, info = env.step(0)
        at = int(pool.root_Q[index])
        for _ in range(MAX_STEPS - 1):
            row = row_of(env, shown)
            for name, _ in tables.SPACE.blocks:
                there, here = space.find_block(name), tables.SPACE.find_block(name)
                assert row[there].tolist() == pool.seen_PD[at, here].tolist(), name
            legal = [bool(info["action_mask"][option]) for option in tables.OPTIONS]
            assert legal == pool.is_legal_PO[at].tolist()
            sources = np.flatnonzero(legal[:-1])
            if not len(sources):
                break
            source = int(rng.choice(sources))
            shown, _, _, _, info = env.step(tables.NUMBERS[source])
            assert info["signals"]["ndcg"] == pytest.approx(float(pool.worth_PK[at, source]))
            at = int(pool.child_PK[at, source])
        else:
            assert at == -1


@pytest.mark.parametrize("method", ["sampled", "exact"])
def test_training_raises_the_value_on_its_questions(
    env: RetrievalControlEnv, pool: Any, scripts: Any, method: str
) -> None:
    if "demo" not in env.world.place.collection:
        pytest.skip("a few questions are no training set")
    _, experiment = scripts
    values = []
    for steps in (0, 20):
        training = experiment.Training(method, steps, lr=0.05, prompts=10, group_size=8)
        network = experiment.train(pool, np.arange(len(pool.ids_Q)), (), training)
        values.append(float(experiment.play_greedily(network, pool).mean()))
    # It begins as the single pass.
    assert values[0] == pytest.approx(float(pool.single_Q.mean()), abs=1e-6)
    assert values[1] > values[0] + 0.05


@pytest.mark.skipif(importlib.util.find_spec("wordllama") is None, reason="needs wordllama")
def test_the_whole_experiment_is_kept_and_repeated(
    toy: dict[str, Any],
    scripts: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tables, experiment = scripts
    kept = tmp_path / "tables.npz"
    monkeypatch.setattr(experiment.networks, "FARTHEST_LOGIT", 8.0)
    command = ["cross_validate.py", "--collection", "demo", "--beside", toy["collection"]]
    command += ["--cache", toy["cache"], "--tables", str(kept), "--folds", "3", "--steps", "3"]
    told = []
    for more in ([], [], ["--bound", "0.001"]):
        monkeypatch.setattr(sys, "argv", [*command, *more])
        experiment.main()
        told.append(json.loads(capsys.readouterr().out))
        for name in ("tables_cpu_s", "cpu_s"):
            told[-1].pop(name)
    assert told[0] == told[1]
    assert list(told[0]["draws"]) == ["7", "8"] and len(told[0]["draws"]["7"]["sequences"]) == 3
    # What is learned can hardly speak: the network stays the sequence of its fold.
    assert told[2]["against the best pooled"]["value"] == 0 and told[2]["bound"] == 0.001
    found = tables.load_tables(kept)
    assert list(found) == sorted(["demo:train", f"{toy['collection']}:train"])
    monkeypatch.setattr(tables, "QUERY_FEATURES", ("other",))
    with pytest.raises(DataError, match="delete it"):
        tables.load_tables(kept)
