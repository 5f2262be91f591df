"""Checkpoints: a kill at any moment leaves a whole one, and loading puts everything back."""

from __future__ import annotations

import errno
import math
import os
from collections import OrderedDict, deque
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import engine_toy
import pytest
import torch
from engine_toy import enlarge_lora, micro_policy, play
from pytest import MonkeyPatch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from searchrl.algorithms.builtin import make_grpo
from searchrl.algorithms.record import Hooks
from searchrl.core.group import Group, make_groups
from searchrl.engine.learning import checkpoint as module
from searchrl.engine.learning import state_files
from searchrl.engine.learning.checkpoint import load_checkpoint, save_checkpoint, save_policy
from searchrl.engine.learning.state_files import load_state, save_state
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.rollout import Rollout
from searchrl.errors import DamagedError, PluginError, PolicyError, RunFolderError
from searchrl.run_folder import list_checkpoints, newest_checkpoint, read_state
from searchrl.run_folder.checkpoints import checkpoint_fault, checkpoint_folders
from searchrl.run_folder.manifest import CHECKSUMS, Manifest
from searchrl.run_folder.policies import choose_policy
from searchrl.run_folder.shapes import Shape

make_learner = partial(engine_toy.make_learner, warmup_steps=3)


def state(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "best": None} | more


@pytest.fixture
def groups(policy: Policy, short_world: Any) -> list[Group[Rollout]]:
    return make_groups(play(policy, short_world))


@pytest.mark.parametrize("adapter", ["full", "lora"])
def test_loading_puts_weights_optimiser_and_counters_back_bit_for_bit(
    device: Any, micro_model: Path, tmp_path: Path, groups: Any, adapter: str, same_bits: None
):
    """LoRA counted twice on resume gives gibberish; a lost momentum gives another run."""
    model: dict[str, Any] = {"device": device, "adapter": adapter, "lora_r": 4}
    policy = micro_policy(micro_model, **model)
    if adapter == "lora":
        enlarge_lora(policy)
    learner = make_learner(policy, epochs=2)
    learner.train_step(groups)
    save_checkpoint(tmp_path, policy, learner, state(1))
    stats = [learner.train_step(groups).metrics for _ in range(2)]

    other = micro_policy(micro_model, **model)
    resumed = make_learner(other, epochs=2)
    assert load_checkpoint(newest_checkpoint(tmp_path).folder, other, resumed) == state(1)
    assert (resumed.step, other.version) == (1, 2)
    assert [resumed.train_step(groups).metrics for _ in range(2)] == stats
    for left, right in zip(policy.parameters, other.parameters, strict=True):
        assert torch.equal(left, right)


def test_state_of_the_algorithm_travels(policy: Policy, tmp_path: Path):
    kept: dict[str, Any] = {}
    base = make_grpo()

    class Solved(Hooks):
        def state_dict(self) -> dict[str, Any]:
            return {"solved": 7}

        def load_state_dict(self, state: Any) -> None:
            kept.update(state)

    algorithm = replace(base, hooks=Solved())
    save_checkpoint(tmp_path, policy, make_learner(policy, algorithm), state(4))
    load_checkpoint(newest_checkpoint(tmp_path).folder, policy, make_learner(policy, algorithm))
    assert kept == {"solved": 7}


class TestKilled:
    @pytest.mark.parametrize(
        ("owner", "name"),
        [
            (module, "save_state"),
            (Manifest, "of"),
            (Manifest, "write"),
            (module, "_sync"),
            (Path, "rename"),
        ],
        ids=["optimiser", "checksums", "manifest", "sync", "rename"],
    )
    def test_between_any_two_writes_the_old_one_stays_usable(
        self, policy: Policy, tmp_path: Path, monkeypatch: MonkeyPatch, owner: Any, name: str
    ):
        learner = make_learner(policy)
        save_checkpoint(tmp_path, policy, learner, state(1))

        class Killed(BaseException):
            pass

        def kill(*args: Any, **kwargs: Any) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, kill)
            with pytest.raises(Killed):
                save_checkpoint(tmp_path, policy, learner, state(2))
        assert [folder.name for folder in list_checkpoints(tmp_path)] == ["step_000001"]
        assert (tmp_path / "checkpoints" / ".step_000002.partial").is_dir()
        assert load_checkpoint(newest_checkpoint(tmp_path).folder, policy, learner) == state(1)
        # The next attempt is not troubled by what lies around, and cleans it up.
        save_checkpoint(tmp_path, policy, learner, state(2))
        assert newest_checkpoint(tmp_path).folder.name == "step_000002"
        assert not list((tmp_path / "checkpoints").glob(".*.partial"))

    @pytest.mark.parametrize(
        ("error", "heard"),
        [
            (SafetensorError("no space"), "(?s)cannot write the run folder.*--resume"),
            (RuntimeError("iostream error"), "could not be written whole .iostream"),
            (OSError(errno.ENOSPC, "no space"), "cannot write the run folder"),
            (Exception("tokenizers"), "could not be written whole .tokenizers"),
            (KeyError("a bug of ours"), "a bug of ours"),
        ],
    )
    @pytest.mark.parametrize("what", ["optimiser", "weights"])
    def test_on_a_full_disk_the_old_one_stays_and_nothing_half_written(
        self,
        policy: Policy,
        tmp_path: Path,
        monkeypatch: MonkeyPatch,
        error: Any,
        heard: str,
        what: str,
    ):
        learner = make_learner(policy)
        save_checkpoint(tmp_path, policy, learner, state(1))
        places: Any = {"optimiser": (module, "save_state"), "weights": (type(policy), "save")}
        monkeypatch.setattr(*places[what], Mock(side_effect=error))
        told = KeyError if isinstance(error, KeyError) else RunFolderError
        with pytest.raises(told, match=heard):
            save_checkpoint(tmp_path, policy, learner, state(2))
        if what == "weights":
            with pytest.raises(told, match=heard):
                save_policy(tmp_path, policy)
            assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000001"]

    def test_a_whole_checkpoint_is_never_taken_apart_to_write_it_again(
        self, policy: Policy, tmp_path: Path, monkeypatch: MonkeyPatch
    ):
        # The same step once more (its evaluation was the best so far; Ctrl-C just after it).
        learner = make_learner(policy)
        folder = save_checkpoint(tmp_path, policy, learner, state(1))
        weights = (folder / "policy" / "model.safetensors").stat()
        monkeypatch.setattr(module.shutil, "rmtree", lambda *a, **k: pytest.fail("rmtree"))
        save_checkpoint(tmp_path, policy, learner, state(1, best={"step": 1, "reward": 0.5}))
        assert (folder / "policy" / "model.safetensors").stat().st_ino == weights.st_ino
        assert read_state(folder)["best"] == {"step": 1, "reward": 0.5}
        assert not list(folder.glob("*.partial"))


def test_all_of_it_is_on_disk_before_it_has_its_name_and_no_file_stays_open(
    policy: Policy, tmp_path: Path, monkeypatch: MonkeyPatch
):
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda number: synced.append(os.fstat(number).st_ino))
    before = len(os.listdir("/proc/self/fd"))
    folder = save_checkpoint(tmp_path, policy, make_learner(policy), state(1))
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.stat().st_ino for path in (*written, folder.parent)} == {*synced}
    save_checkpoint(tmp_path, policy, make_learner(policy), state(1, best=2))
    assert {path.stat().st_ino for path in (folder / "state.json", folder)} <= {*synced[-2:]}
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_policy_takes_the_place_of_another_whole(
    policy: Policy, tmp_path: Path, monkeypatch: MonkeyPatch
):
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "policy").symlink_to(other)
    (other / "mine").write_text("1")
    for _ in range(2):
        folder = save_policy(tmp_path, policy)
        assert not folder.is_symlink() and (other / "mine").exists()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "policy"]
        assert choose_policy(folder) == (folder, ())

    class Killed(BaseException):
        pass

    rename = Path.rename

    def kill(self: Path, target: Path) -> Path:
        if target == folder:
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", kill)
        for _ in range(2):
            with pytest.raises(Killed):
                save_policy(tmp_path, policy)
            for name in (".policy.partial", ".policy.before.partial"):
                Manifest.read(tmp_path / name / CHECKSUMS).verify(tmp_path / name)
            os.rename(tmp_path / ".policy.before.partial", folder)
            (tmp_path / ".policy.before.partial").mkdir()
            (tmp_path / ".policy.before.partial" / "left by a kill").touch()
    save_policy(tmp_path, policy)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "policy"]


class Strict(Shape):
    step: int
    best: None


def test_what_does_not_fit_is_refused_in_the_words_of_its_kind(
    policy: Policy, tmp_path: Path, monkeypatch: MonkeyPatch
):
    learner = make_learner(policy)
    folder = save_checkpoint(tmp_path, policy, learner, state(1, best=3))
    with pytest.raises(DamagedError, match=r"state.json' is damaged: no run writes 'best'"):
        load_checkpoint(folder, policy, learner, Strict)
    # Weights in several files are put together.
    file = folder / "policy" / "model.safetensors"
    weights = load_file(file)
    for number, part in enumerate((slice(None, 3), slice(3, None))):
        names = sorted(weights)[part]
        path = file.with_name(f"model-{number}.safetensors")
        save_file({name: weights[name] for name in names}, path, metadata={"format": "pt"})
    file.unlink()
    load_checkpoint(folder, policy, learner)
    path.write_bytes(b"cut off")
    with pytest.raises(DamagedError, match=r"model-1.safetensors' is damaged"):
        load_checkpoint(folder, policy, learner)
    full = Mock(side_effect=torch.OutOfMemoryError("no memory"))
    monkeypatch.setattr(module, "load_weights", full)
    with pytest.raises(torch.OutOfMemoryError):
        load_checkpoint(folder, policy, learner)


def test_no_checkpoint_says_so(tmp_path: Path):
    with pytest.raises(RunFolderError, match="has no checkpoint to resume from"):
        newest_checkpoint(tmp_path)


class TestNotFinite:
    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_weights_are_never_saved(self, policy: Policy, tmp_path: Path, value: float):
        learner = make_learner(policy)
        save_checkpoint(tmp_path, policy, learner, state(1))
        with torch.no_grad():
            policy.parameters[-1].view(-1)[0] = value
        for save in (
            lambda: save_checkpoint(tmp_path, policy, learner, state(2)),
            lambda: save_policy(tmp_path, policy),
        ):
            with pytest.raises(PolicyError, match="weight '.*' is not finite") as caught:
                save()
            assert "--init-from" in str(caught.value) and "learning rate" in str(caught.value)
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000001"]
        assert not (tmp_path / "policy").exists()
        assert newest_checkpoint(tmp_path) == (tmp_path / "checkpoints" / "step_000001", ())

    def test_weights_that_nobody_trains_may_be_what_they_are(
        self, micro_model: Path, tmp_path: Path
    ):
        policy = micro_policy(micro_model, adapter="lora", lora_r=4)
        frozen = next(p for p in policy.model.parameters() if not p.requires_grad)
        frozen.data.view(-1)[0] = -math.inf  # such as the logit of a token that must not be
        assert save_checkpoint(tmp_path, policy, make_learner(policy), state(1)).is_dir()

    def test_nor_is_the_state_of_an_optimiser(
        self, policy: Policy, tmp_path: Path, groups: list[Group[Rollout]]
    ):
        learner = make_learner(policy)
        learner.train_step(groups)
        moment = learner.optimizer.state[policy.parameters[0]]["exp_avg_sq"]
        moment.view(-1)[0] = float("inf")
        with pytest.raises(PolicyError, match=r"optimiser's state\['state'\]\[0\]\['exp_avg_sq'\]"):
            save_checkpoint(tmp_path, policy, learner, state(1))
        assert not list_checkpoints(tmp_path)


def test_no_file_of_a_checkpoint_is_a_pickle(policy: Policy, tmp_path: Path, groups: Any):
    learner = make_learner(policy)
    learner.train_step(groups)
    folder = save_checkpoint(tmp_path, policy, learner, state(1))
    names = {file.suffix for file in folder.rglob("*") if file.is_file()}
    assert names <= {".json", ".safetensors", ".jinja", ".txt", ".md"}
    for file in folder.rglob("*.safetensors"):
        load_file(file)


def test_a_damaged_checkpoint_of_the_same_step_is_written_again(policy: Policy, tmp_path: Path):
    learner = make_learner(policy)
    folder = save_checkpoint(tmp_path, policy, learner, state(1))
    weights = folder / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    save_checkpoint(tmp_path, policy, learner, state(1))
    assert not any(checkpoint_fault(one, deep=True) for one in checkpoint_folders(tmp_path))
    assert newest_checkpoint(tmp_path) == (folder, ())
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def around(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    save_state(folder, "state", state)
    return load_state(folder, "state")


def test_plain_values_come_back_with_their_types(tmp_path: Path) -> None:
    state = {
        "numbers": [0, -3, 1.5, True, None, 10**30],
        "not finite": (math.inf, -math.inf),
        "texts": {"a", "ä\ud800"},
        0: frozenset({1, 2}),
        (1, "x"): {"inner": {}},
        "ordered": OrderedDict(b=1, a=2),
        "looks like a tag": ["tensor", "00000"],
    }
    back = around(tmp_path, state)
    assert back == state and list(back) == list(state)
    assert [type(one) for one in back["numbers"]] == [int, int, float, bool, type(None), int]
    assert isinstance(back["not finite"], tuple) and list(back["ordered"]) == ["b", "a"]
    assert math.isnan(around(tmp_path, {"x": math.nan})["x"])


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]
)
def test_tensors_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    one = (torch.randn(3, 4) * 9).to(dtype)
    state = {
        0: {"step": torch.tensor(7.0), "avg": one.T, "empty": torch.zeros(0)},
        "again": [one.T],
    }
    state["same"] = state[0]["avg"]
    back = around(tmp_path, state)
    assert torch.equal(back[0]["avg"], one.T) and back[0]["avg"].dtype == dtype
    assert back[0]["step"].shape == () and back[0]["empty"].shape == (0,)
    assert back["same"] is back[0]["avg"] and torch.equal(back["again"][0], one.T)


def test_large_states_are_split_over_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "MAX_FILE_BYTES", 100)
    state = {
        name: torch.arange(float(n)) for name, n in (("a", 20), ("b", 200), ("c", 3), ("d", 22))
    }
    back = around(tmp_path, state)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    assert all(torch.equal(back[name], state[name]) for name in state)


@pytest.mark.parametrize("value", [object(), deque(), Path("x"), 1j, print, b"bytes"])
def test_what_it_cannot_hold_is_named_with_its_place(tmp_path: Path, value: object) -> None:
    with pytest.raises(PluginError, match=r"state\['algorithm'\]\[1\] is of type"):
        save_state(tmp_path, "state", {"algorithm": [1, value]})


@pytest.mark.parametrize("text", ["", "[", "[1]", '["tensor", "7"]', '["eval", "1"]', "[" * 90_000])
def test_file_that_is_none_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(DamagedError, match=r"state\.json' is damaged"):
        load_state(tmp_path, "state")
    (tmp_path / "state-00001.safetensors").write_text(text)
    with pytest.raises(DamagedError, match=r"state-00001\.safetensors' is damaged"):
        load_state(tmp_path, "state")
