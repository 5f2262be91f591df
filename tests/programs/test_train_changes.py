"""Resuming: what has changed since, an epoch's end, and the rollouts of a stopped step."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from train_toy import TOY_PLUGIN, Crash, assert_same_run, settings

from searchrl.config import build_config
from searchrl.engine.episodes.inflight import Inflight, Played
from searchrl.errors import ChangedError, ConfigError
from searchrl.plugins import load_plugins
from searchrl.programs.observer import SilentObserver
from searchrl.programs.train import train
from searchrl.run_folder import Run
from searchrl.run_folder import changes as changes_module
from searchrl.run_folder.changes import describe_sources, find_changes

pytestmark = pytest.mark.usefixtures("threads_restored")


class TestChanges:
    def config(self, **env: Any) -> Any:
        return build_config({"tasks": [{"env": {"name": "corpus", **env}}]})

    def find(self, config: Any, change: Any) -> list[str]:
        before = json.loads(json.dumps(describe_sources(config, {"toy/train": 48})))
        registry = load_plugins()
        assert find_changes(before, describe_sources(config, {"toy/train": 48}), registry) == []
        change()
        return find_changes(before, describe_sources(config, {"toy/train": 48}), registry)

    def test_data_file(self, tmp_path: Path):
        file = tmp_path / "q.jsonl"
        file.write_text("one\n")
        (text,) = self.find(self.config(questions=str(file)), lambda: file.write_text("two\n"))
        assert text.startswith(f"the data '{file}' was ") and text.endswith(" now")

    def test_file_in_a_folder_of_data(self, tmp_path: Path):
        (tmp_path / "docs" / "inner").mkdir(parents=True)
        file = tmp_path / "docs" / "inner" / "a.txt"
        file.write_text("one")
        config = self.config(corpus=str(tmp_path / "docs"))
        (text,) = self.find(config, lambda: file.rename(file.with_name("b.txt")))
        assert f"the data '{tmp_path / 'docs'}'" in text

    def test_text_of_an_instruction(self, tmp_path: Path):
        file = tmp_path / "instruction.txt"
        file.write_text("Search first.")
        protocol = {"name": "think-search-answer", "instruction": f"@{file}"}
        config = build_config({"tasks": [{"env": {"name": "corpus"}, "protocol": protocol}]})
        assert len(self.find(config, lambda: file.write_text("Answer at once."))) == 1

    def test_caches_grow_while_a_run_works(self, tmp_path: Path):
        file = tmp_path / "answers.sqlite"
        file.write_text("one")
        part = {"name": "http", "cache": str(file)}
        task = {"env": {"name": "corpus", "news": part}, "retriever": part, "judge": part}
        assert self.find(build_config({"tasks": [task]}), lambda: file.write_text("more")) == []

    def test_a_cache_that_is_replayed_is_data(self, tmp_path: Path):
        file = tmp_path / "answers.sqlite"
        file.write_text("one")
        part = {"name": "exa", "cache": str(file), "replay": True}
        config = build_config({"tasks": [{"env": {"name": "corpus", "news": part}}]})
        assert len(self.find(config, lambda: file.write_text("more"))) == 1

    def test_file_that_is_gone(self, tmp_path: Path):
        file = tmp_path / "q.jsonl"
        file.write_text("one\n")
        (text,) = self.find(self.config(questions=str(file)), file.unlink)
        assert text.endswith("and is not there now")

    @pytest.mark.parametrize("place", [0, -1])
    def test_large_file_that_grew_or_changed_at_its_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
    ):
        monkeypatch.setattr(changes_module, "WHOLE_BYTES", 1000)
        monkeypatch.setattr(changes_module, "PART_BYTES", 10)
        file = tmp_path / "corpus.jsonl"
        file.write_bytes(bytes(5000))

        def change() -> None:
            data = bytearray(5000)
            data[place] = 1
            file.write_bytes(data)

        assert len(self.find(self.config(corpus=str(file)), change)) == 1

    def test_number_of_tasks(self):
        before = describe_sources(self.config(), {"toy/train": 48})
        now = describe_sources(self.config(), {"toy/train": 47})
        (text,) = find_changes(before, now, load_plugins())
        assert text == "the number of tasks in split 'toy/train' was 48 and is 47 now"

    def test_version_of_the_package_of_a_gymnasium_env(self):
        config = build_config({"tasks": [{"env": {"name": "gym:FrozenLake-v1"}}]})
        before = describe_sources(config, {})
        assert before["environments"]["gym:FrozenLake-v1"].startswith("gymnasium ")
        was = {"environments": {"gym:FrozenLake-v1": "gymnasium 0.1"}}
        (text,) = find_changes(was, before, load_plugins())
        assert text.startswith("environment 'gym:FrozenLake-v1' was gymnasium 0.")

    @pytest.mark.thorough
    def test_changed_plugin_is_refused_unless_that_is_allowed(
        self, micro_model: Path, tmp_path: Path
    ):
        plugin = tmp_path / TOY_PLUGIN.name
        shutil.copy(TOY_PLUGIN, plugin)
        config = settings(micro_model, tmp_path / "run", plugins=[str(plugin)], max_steps=3)
        with pytest.raises(KeyboardInterrupt):
            train(config, observer=Crash(2, "interrupt"))
        before = {path: path.read_bytes() for path in _files(tmp_path / "run")}
        plugin.write_text(plugin.read_text() + "\n# another version\n")
        with pytest.raises(ChangedError) as caught:
            train(resume=tmp_path / "run", trust=True)
        assert "plugin toy_world was " in str(caught.value)
        assert "go on with --allow-change" in str(caught.value)
        assert before == {path: path.read_bytes() for path in _files(tmp_path / "run")}
        run = train(resume=tmp_path / "run", allow_change=True, trust=True)
        (change,) = run.provenance["changes"]
        assert "plugin toy_world" in change["what"][0] and run.summary["steps"] == 3
        # Now it is what the run rests on.
        train(resume=run.path, trust=True)


def _files(folder: Path) -> list[Path]:
    return [
        path for path in sorted(folder.rglob("*")) if path.is_file() and ".lock" not in str(path)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("step", [2, 4])
def test_resumed_at_the_end_of_an_epoch_it_trains_the_remaining_steps(
    micro_model: Path, tmp_path: Path, step: int
):
    """The toy world has 43 training tasks: at 43 prompts per two steps, step 2 ends an epoch."""
    plugin = tmp_path / "toy_world.py"
    plugin.write_text(TOY_PLUGIN.read_text().replace("NUM_TASKS = 48", "NUM_TASKS = 5"))
    more = {"plugins": [str(plugin)], "max_steps": 5, "eval": {"every": 0}}
    rollout = {"prompts_per_step": 2, "group_size": 2}
    whole = train(settings(micro_model, tmp_path / "whole", **more, rollout=rollout))
    tasks = [row["task"]["index"] for row in whole.rollouts("train")][::2]
    assert len(tasks) == 10 and set(tasks[:4]) == set(tasks[4:8])  # four tasks: two steps
    with pytest.raises(KeyboardInterrupt):
        train(
            settings(micro_model, tmp_path / "run", **more, rollout=rollout),
            observer=Crash(step, "interrupt"),
        )
    run = train(resume=tmp_path / "run")
    assert [row["step"] for row in run.metrics if row["phase"] == "train"] == [1, 2, 3, 4, 5]
    assert_same_run(whole, run, at_least=20)


class StopInStep(SilentObserver):
    """Asks to stop when `done` of the rollouts of a step have finished; keeps the notes."""

    def __init__(self, step: int, done: int) -> None:
        self.at, self.done_at = step, done
        self.finished = 0
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, step: int, max_steps: int, metrics: Any) -> None:
        self.finished = step

    def phase(self, name: str, done: int, total: int) -> None:
        if name == "sample" and self.finished == self.at - 1 and done >= self.done_at:
            os.kill(os.getpid(), signal.SIGTERM)


class TestInflight:
    @pytest.fixture
    def stopped(self, micro_model: Path, tmp_path: Path) -> Path:
        """A run that was stopped in step 3 with some of its rollouts finished."""
        rollout = {"batch_size": 2}
        config = settings(micro_model, tmp_path / "run", max_steps=4, rollout=rollout)
        with pytest.raises(KeyboardInterrupt):
            train(config, observer=StopInStep(3, 2))
        assert len(list((tmp_path / "run" / "rollouts").glob("*.inflight"))) == 1
        return tmp_path / "run"

    @pytest.mark.thorough
    def test_finished_rollouts_are_used_and_that_is_said_and_recorded(self, stopped: Path):
        inflight = Inflight(stopped, 3)
        num_found = inflight.read()
        assert 0 < num_found < 6
        observer = StopInStep(-1, 0)
        run = train(resume=stopped, resume_inflight=True, observer=observer)
        (note,) = [text for text in observer.notes if "begins with" in text]
        assert f"step 3 begins with {num_found} rollouts that had finished" in note
        assert "not bit-identical from here on" in note
        assert run.provenance["inflight"] == [{"step": 3, "rollouts": num_found}]
        rows = {row["rollout_id"]: row for row in run.rollouts("train") if row["step"] == 2}
        assert len(rows) == 6
        for name, (trajectory, episode) in inflight.found.items():
            assert rows[name]["ids"] == list(trajectory.ids)
            assert rows[name]["sampler_logp"] == list(trajectory.sampler_logps)
            assert [turn["text"] for turn in rows[name]["turns"]] == [t.text for t in episode.turns]
        steps = [row["step"] for row in run.metrics if row["phase"] == "train"]
        assert steps == [1, 2, 3, 4]
        assert list((run.path / "rollouts").glob("*.inflight")) == []

    @pytest.mark.thorough
    def test_without_the_flag_they_are_sampled_again(self, stopped: Path, micro_model: Path):
        config = settings(micro_model, stopped.with_name("whole"), max_steps=4)
        whole = train(config | {"rollout": config["rollout"] | {"batch_size": 2}})
        run = train(resume=stopped)
        assert_same_run(whole, run, at_least=20)
        assert list((run.path / "rollouts").glob("*.inflight")) == []
        assert "inflight" not in run.provenance

    def test_torn_line_is_left_out(self, whole_run: Run, tmp_path: Path):
        first, second = (_played(number) for number in (1, 2))
        inflight = Inflight(tmp_path, 7)
        inflight.add(first)
        inflight.add(second)
        inflight.path.write_bytes(inflight.path.read_bytes()[:-20])
        again = Inflight(tmp_path, 7)
        assert again.read() == 1
        again.add(second)
        last = Inflight(tmp_path, 7)
        assert last.read() == 2
        assert list(last.found.values()) == [first, second]
        assert (again.num_damaged, last.num_damaged) == (0, 0)

    @pytest.mark.parametrize("row", [b"", b'{"trajectory": ' + b"[" * 10**5, b'{"trajectory": 1}'])
    def test_line_that_was_not_written_is_left_out(self, tmp_path: Path, row: bytes):
        inflight = Inflight(tmp_path, 7)
        inflight.add(_played(1))
        inflight.add(_played(2))
        lines = inflight.path.read_bytes().splitlines(keepends=True)
        digest = hashlib.sha256(row).hexdigest().encode() + b" "
        # The first one has another token now; who sealed the last one never played an episode.
        changed = lines[0].replace(b'"prompt": [1, 2]', b'"prompt": [1, 9]')
        inflight.path.write_bytes(changed + lines[1] + digest + row + b"\n")
        again = Inflight(tmp_path, 7)
        assert again.read() == 1 and again.num_damaged == 2
        assert list(again.found.values()) == [_played(2)]

    def test_episode_that_json_cannot_hold_is_not_kept(self, tmp_path: Path):
        inflight = Inflight(tmp_path, 7)
        inflight.add(_played(1, payload={3, 4}))
        inflight.add(_played(2, payload="\ud800"))
        inflight.add(_played(3, payload=[{"a": (1, 2)}]))
        inflight.add(_played(4, payload=float("nan")))
        assert inflight.read() == 0
        inflight.add(_played(5, payload={"deep": [1, 0.1, None, True, "x"]}))
        assert inflight.read() == 1
        assert inflight.found["g/5"] == _played(5, payload={"deep": [1, 0.1, None, True, "x"]})

    def test_several_processes(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            monkeypatch.setenv(name, "0")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(ConfigError, match="--resume-inflight works in one process"):
            train(resume=tmp_path, resume_inflight=True)


def _played(number: int, payload: Any = ("who", "what")) -> Played:
    from searchrl.core.episode import SEARCH, Action, Episode, EpisodeTurn, Passage, Task, ToolCall
    from searchrl.core.trajectory import Trajectory, TurnStop

    trajectory = Trajectory(f"g/{number}", "g", env="toy", task_id="t", generated_text="a\nb")
    trajectory.append_prompt([1, 2])
    trajectory.append_model([3], [-0.1234567890123], version=4, reason=TurnStop.STOP_STRING)
    trajectory.append_env([5, 6])
    trajectory.append_model([7], [-3e-17], version=4, reason=TurnStop.EOS, overhang="x")
    kind = SEARCH if isinstance(payload, tuple) else "own"
    turns = (
        EpisodeTurn("a", Action(kind, payload), (Passage("p", "text", score=0.1),), "seen", 0.5),
        EpisodeTurn("b", Action("tool", ToolCall("add", {"a": [1, None]}))),
    )
    task = Task("t", "train", 3, "who?", ("x",), meta={"deep": {"list": [1, 2.5]}}, slices=("s",))
    return Played(trajectory, Episode(task, turns, "b", 0.5, {"n": 1.0}, 0.5, 2, step=2))
