"""Two processes: the gradient, the samples, the run and the errors of one."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from train_toy import metrics_of, settings, weights_of
from workers_play import LEARNING, learn, play, sample

from searchrl.cli import main
from searchrl.core.group import Group
from searchrl.engine.learning import workers as module
from searchrl.engine.learning.sharing import play_shared
from searchrl.engine.learning.torchrun import ONLY, Place, read_place
from searchrl.engine.learning.workers import ALONE, Workers, _digest
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.errors import ConfigError, WorkerError
from searchrl.programs.train import train
from searchrl.run_folder import Run

Both = Callable[[str], list[Any]]
HERE = Path(__file__).resolve().parents[1]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]

UNDER_TORCHRUN = dict(RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
UNDER_TORCHRUN |= dict(MASTER_ADDR="localhost", MASTER_PORT="1")


def two_steps(model: Path, run_dir: Path) -> dict[str, Any]:
    optim = {"lr": 1e-3, "warmup_steps": 1}
    keep = {"keep_last": 9}
    return settings(model, run_dir, max_steps=2, optim=optim, eval={"every": 1}, checkpoint=keep)


class Meeting:
    """`torch.distributed` of two threads."""

    def __init__(self) -> None:
        self.here = threading.local()
        self.brought: list[Any] = [None, None]
        self.num_left = 0
        self.num_met = [0, 0]
        self.barrier = threading.Barrier(2, timeout=20)

    def all_gather_object(self, found: list[Any], own: Any) -> None:
        self.num_met[self.here.rank] += 1
        self.brought[self.here.rank] = pickle.dumps(own)
        self.barrier.wait()
        found[:] = map(pickle.loads, self.brought)
        self.barrier.wait()

    def all_reduce(self, flat: torch.Tensor) -> None:
        parts: list[Any] = [None, None]
        self.all_gather_object(parts, flat)
        flat.copy_(parts[0] + parts[1])

    def destroy_process_group(self) -> None:
        self.num_left += 1


def meet(patch: pytest.MonkeyPatch, function: Any) -> tuple[list[Any], Meeting]:
    """What `function(place)` gives in two threads that are processes to each other."""
    meeting = Meeting()
    patch.setattr(module, "dist", meeting)
    patch.setattr(Workers, "_join", lambda self, device: None)

    def run(rank: int) -> Any:
        meeting.here.rank = rank
        return function(Place(rank, 2, rank, 2))

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2))), meeting


@pytest.fixture(params=["threads", pytest.param("processes", marks=pytest.mark.thorough)])
def both(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, micro_model: Path
) -> Callable[[str], list[Any]]:
    """`both(name)` is what each of two got; see `workers_play.play`."""
    if request.param == "processes":
        found = request.getfixturevalue("processes")
        return lambda name: [one[name] for one in found]

    def run(name: str) -> list[Any]:
        got, meeting = meet(monkeypatch, lambda place: play(micro_model, place, name))
        assert meeting.num_left == 2
        return got

    return run


@pytest.fixture(scope="module")
def processes(micro_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each of two processes got; see `workers_play.main`."""
    folder = tmp_path_factory.mktemp("both")
    return start_two(micro_model, folder, two_steps(micro_model, folder / "runs" / "two"))


def start_two(model: Path, folder: Path, given: Any) -> list[Any]:
    """Start two processes; what each of them saved."""
    script = str(HERE / "workers_play.py")
    command = [*TORCHRUN, script, str(model), str(folder), json.dumps(given)]
    paths = os.pathsep.join([str(HERE.parent.parent), str(HERE.parent), str(HERE)])
    around = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def assert_close(ours: Any, theirs: Any, tolerance: float) -> None:
    assert (ours - theirs).norm() <= tolerance * ours.norm()


def assert_learned_alike(alone: Any, found: list[Any], tolerance: float) -> None:
    for two in found:
        assert torch.equal(two["weights"], found[0]["weights"])  # bit for bit
        if alone["gradient"] is None:
            assert two["gradient"] is None
        else:
            assert alone["gradient"].norm() > 1e-3
            assert_close(alone["gradient"], two["gradient"], tolerance)
        # Adam divides by the root of a square: where a gradient is tiny, rounding is not.
        assert (alone["weights"] - two["weights"]).abs().max() <= max(1e-8, tolerance)
        assert two["metrics"] == pytest.approx(alone["metrics"], rel=1e-5, abs=1e-6)
        assert two["columns"].keys() == alone["columns"].keys()
        for rollout_id, one in alone["columns"].items():
            advantage, ratio, entropy, weight, clipped = one
            theirs = two["columns"][rollout_id]
            assert theirs[0] == advantage and theirs[1] == pytest.approx(ratio, rel=1e-5)
            assert theirs[2] == pytest.approx(entropy, rel=1e-5)
            assert theirs[3] == pytest.approx(weight, rel=1e-12) and theirs[4] == clipped


class TestLearning:
    @pytest.mark.parametrize("name", LEARNING)
    def test_two_processes_have_the_gradient_of_one(self, both: Both, micro_model: Path, name: str):
        alone = learn(micro_model, ALONE, **LEARNING[name])
        tolerance = 1e-10 if LEARNING[name].get("dtype") == "float64" else 1e-5
        assert_learned_alike(alone, both(name), tolerance)

    @pytest.mark.thorough
    def test_two_processes_on_one_device_have_the_gradient_of_one(
        self, device: torch.device, micro_model: Path, tmp_path: Path
    ):
        found = start_two(micro_model, tmp_path, device.type)
        alone = learn(micro_model, ALONE, device=device, dtype="float64")
        assert_learned_alike(alone, found, 1e-10)

    def test_a_gradient_that_nobody_has_stays_missing(self, both: Both):
        """AdamW leaves out a parameter without a gradient; zeros would move it."""
        summed = "returned [[3.0, 3.0, 3.0], [[1.0, 1.0], [1.0, 1.0]], None]"
        assert both("sums") == [summed, summed]


class TestSampling:
    def test_two_processes_sample_what_one_does(self, both: Both, micro_model: Path):
        alone = sample(micro_model, ALONE)
        assert len(alone) == 9 and len({row["ids"] for row in alone}) > 3
        for two in both("sample"):
            for ours, theirs in zip(alone, two, strict=True):
                logps = ours.pop("logps"), theirs.pop("logps")
                assert ours == theirs
                assert [x is None for x in logps[0]] == [x is None for x in logps[1]]
                pairs = [p for p in zip(*logps, strict=True) if p[0] is not None]
                assert [p[0] for p in pairs] == pytest.approx([p[1] for p in pairs], abs=1e-5)
                ours["logps"], theirs["logps"] = logps

    def test_progress_is_that_of_all_and_rollouts_come_back_with_their_world(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        keys = {"a": (1, 2), "b": (3,), "c": (4, 5, 6)}
        requests: Any = [
            RolloutRequest(name, f"world of {name}", "train", 0, own)  # type: ignore[arg-type]
            for name, own in keys.items()
        ]

        def play(own: Any, *, on_progress: Any, should_stop: Any) -> list[Any]:
            assert should_stop is any
            count = sum(len(request.rng_keys) for request in own)
            on_progress(count - 1, count)
            on_progress(count, count)
            made = SimpleNamespace(trajectory=1, episode=2, scored=3, reset_options={"x": 4})
            return [Group(request.group_id, (made,)) for request in own]

        def run(place: Place) -> Any:
            told: list[Any] = []
            groups = play_shared(
                play,
                Workers(place),
                requests,
                on_progress=lambda *both: told.append(both),
                should_stop=any,
            )
            one = [group.rollouts[0] for group in groups]
            assert [rollout.world for rollout in one] == [f"world of {name}" for name in keys]
            assert {(r.trajectory, r.episode, r.scored, r.reset_options["x"]) for r in one} == {
                (1, 2, 3, 4)
            }
            return [group.id for group in groups], told

        first, second = meet(monkeypatch, run)[0]
        assert first == (["a", "b", "c"], [(4 * 6 // 5, 6), (6, 6)])
        assert second == (["a", "b", "c"], [(0, 6), (6, 6)])

    def test_one_process_that_stops_stops_both(self, both: Both):
        assert both("interrupted") == ["Interrupted: ", "Interrupted: "]


class TestEndings:
    def test_a_failure_is_heard_wherever_the_others_wait(self, both: Both):
        first, second = both("fails before gradients")
        assert second == "ZeroDivisionError: the plugin is broken"
        assert first == (
            "WorkerError: process 1 of 2 failed, so all of them end: "
            "ZeroDivisionError: the plugin is broken"
        )

    def test_after_each_end_the_same_processes_can_meet_again(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        def run(place: Place) -> list[Any]:
            workers, found = Workers(place), []
            for number in range(2):
                with workers.joined(torch.device("cpu")):
                    found.append(workers.gather((place.rank, number)))
                    assert workers.agree_to_stop(place.is_first)
                    with pytest.raises(RuntimeError, match="has taken leave"):
                        workers.barrier()
            return found

        found, meeting = meet(monkeypatch, run)
        assert found == [[[(0, 0), (1, 0)], [(0, 1), (1, 1)]]] * 2 and meeting.num_left == 4

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
    def test_nobody_waits_for_a_process_that_has_taken_leave(
        self, monkeypatch: pytest.MonkeyPatch, error: Any
    ):
        """After the second Ctrl-C none exchanges anything; after an agreed end, the leave alone."""
        is_agreed = error is ZeroDivisionError

        def run(place: Place) -> None:
            workers = Workers(place)
            with suppress(error), workers.joined(torch.device("cpu")):
                if is_agreed:
                    workers.agree_to_stop(True)
                if not is_agreed or place.is_first:
                    raise error

        meeting = meet(monkeypatch, run)[1]
        assert meeting.num_met == [2 * is_agreed] * 2 and meeting.num_left == 2

    def test_stopping_is_agreed_upon(self, both: Both):
        assert both("stops") == ["returned True"] * 2

    def test_other_weights_are_found(self, both: Both):
        """By two changes that cancel in a sum."""
        text = (
            "WorkerError: after step 3: process 1 holds other weights than process 0. Every "
            "process must compute the same update"
        )
        assert all(two.startswith(text) for two in both("other weights"))

    def test_processes_that_do_different_things_are_told(self, both: Both):
        first, second = both("out of step")
        assert "process 0 exchanges values, process 1 a barrier: they are out of step" in first
        assert "process 1 exchanges a barrier, process 0 values: they are out of step" in second


@pytest.mark.thorough
class TestTraining:
    def test_a_crash_and_a_resume_end_where_one_process_does(
        self, processes: list[Any], micro_model: Path, tmp_path: Path, threads_restored: None
    ):
        both = processes
        assert both[0]["crash"] == "RuntimeError: the terminal is gone"
        assert both[1]["crash"] == (
            "WorkerError: process 0 of 2 failed, so all of them end: "
            "RuntimeError: the terminal is gone"
        )
        assert both[0]["run"] == both[1]["run"]
        two, one = Run.open(both[0]["run"]), train(two_steps(micro_model, tmp_path / "one"))
        start = weights_of(one.path / "checkpoints" / "step_000000" / "policy")
        ours, theirs = weights_of(one.path / "policy"), weights_of(two.path / "policy")
        for name, weight in ours.items():
            assert (weight - theirs[name]).abs().max() <= 1e-5, name
        assert max((ours[name] - start[name]).abs().max() for name in ours) > 5e-4
        rows = metrics_of(one), metrics_of(two)
        for mine, yours in zip(*rows, strict=True):
            assert mine.keys() == yours.keys() and mine["step"] == yours["step"]
            # Of slots, each process has its own.
            for key in mine.keys() - {"step", "phase", "slot_use"}:
                assert yours[key] == pytest.approx(mine[key], rel=1e-4, abs=1e-5), key
        texts = [[r["generated_text"] for r in run.rollouts()] for run in (one, two)]
        assert texts[0] == texts[1] and len(texts[0]) == 20
        trained = [r for r in two.rollouts("train") if r["ratio"] is not None]
        assert len({r["group_id"] for r in trained}) > 1

    def test_a_step_broken_off_half_way_is_not_kept(
        self, micro_model: Path, tmp_path: Path, threads_restored: None
    ):
        """Its weights are of no step; saved as the step before, part of it would be done twice."""
        from searchrl.engine.learning.learner import Learner

        real, calls = Learner.accumulate, []

        def accumulate(*args: Any) -> Any:
            calls.append(1)
            if len(calls) == 4:  # the second update of the second step
                raise RuntimeError("memory is gone")
            return real(*args)

        config = two_steps(micro_model, tmp_path / "run")
        config["optim"] |= {"mini_batches": 2}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Learner, "accumulate", accumulate)
            with pytest.raises(RuntimeError, match="memory is gone") as caught:
                train(config)
        (note,) = caught.value.__notes__
        assert note.startswith("nothing more could be kept (the update that was broken off had")
        assert "what came after step 1, the last checkpoint, is lost" in note


class TestPlace:
    def test_without_torchrun_there_is_one_process(self):
        assert read_place({}) == read_place({"RANK": "3", "WORLD_SIZE": "8"}) == ONLY
        places = UNDER_TORCHRUN | dict(RANK="5", WORLD_SIZE="8", LOCAL_RANK="1")
        assert read_place(places) == Place(5, 8, 1, 2)
        del places["LOCAL_WORLD_SIZE"]
        assert read_place(places) == Place(5, 8, 1, 8)
        for name in places:
            assert read_place({k: v for k, v in places.items() if k != name}) == ONLY
        assert not Place(1, 2).is_first and ONLY.is_first

    def test_one_process_never_touches_torch_distributed(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("searchrl.engine.learning.workers.dist", None)
        gradients: list[torch.Tensor | None] = [torch.ones(1), None]
        with Workers().joined(torch.device("cpu")) as workers:
            workers.barrier()
            workers.sum_gradients([], gradients)
            workers.ensure_same([torch.ones(1)], "now")
            assert workers.gather("a") == ["a"] and not workers.agree_to_stop(False)
            assert workers.agree_to_stop(True)
        assert gradients == [torch.ones(1), None]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
    def test_weights_are_compared_byte_by_byte(self, dtype: torch.dtype):
        """Squares of the bits miss a sign, and wrap: 2^8 squared is 0 in 16 bits."""
        weights = torch.linspace(-1, 1, 7).to(dtype)
        same = weights.clone()
        flipped, swapped, last_bit = (weights.clone() for _ in range(3))
        flipped[2] *= -1
        swapped[:2] = weights[:2].flip(0)
        last_bit.view(torch.uint8)[-dtype.itemsize] ^= 1
        zeros, wraps = torch.zeros(4, dtype=dtype), torch.zeros(4, dtype=dtype)
        wraps.view(torch.uint8)[dtype.itemsize // 2] = 1
        for left, right in ((weights, flipped), (weights, swapped), (weights, last_bit)):
            assert _digest([left]) != _digest([right])
        assert _digest([zeros]) != _digest([wraps])
        assert _digest([weights, zeros]) == _digest([same, zeros.clone()])
        assert _digest([weights.view(7, 1).T]) == _digest([weights.view(1, 7)])

    def test_several_nodes_are_refused(self):
        workers = Workers(Place(0, 4, 0, 2))
        with pytest.raises(ConfigError, match="start it with --nnodes 1"):
            workers.joined(torch.device("cpu")).__enter__()

    def test_more_processes_than_gpus_are_refused(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        with pytest.raises(ConfigError, match="torch sees 1 GPUs: use --nproc_per_node 1"):
            Workers(Place(0, 2, 0, 2)).joined(torch.device("cuda")).__enter__()
        taken: list[int] = []
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "set_device", taken.append)
        monkeypatch.setattr(module, "rendezvous", Mock(side_effect=RuntimeError("no address")))
        with pytest.raises(WorkerError, match="process 1 of 2 could not meet .*: no address"):
            Workers(Place(1, 2, 1, 2)).joined(torch.device("cuda")).__enter__()
        assert taken == [1]

    @pytest.mark.parametrize("rank", ["0", "1"])
    def test_one_process_speaks(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: str
    ):
        for name, value in (UNDER_TORCHRUN | {"RANK": rank}).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main(["train", "--set", "nowhere=1"])
        said = capsys.readouterr()
        assert ended.value.code == 2
        assert ("nowhere" in said.err) == (rank == "0") and not said.out
