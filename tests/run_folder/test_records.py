"""The records of a run: what a kill leaves is whole, what damage leaves is seen and named."""

from __future__ import annotations

import copy
import gzip
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from damage import DAMAGES, flip, without_overrides

from searchrl.config import build_config
from searchrl.errors import ConfigError, DamagedError, RunFolderError
from searchrl.run_folder import (
    Run,
    RunWriter,
    find_damage,
    looks_like_run,
    read_config_file,
)
from searchrl.run_folder.manifest import Manifest, find_fault
from searchrl.run_folder.rollouts import rollout_files
from searchrl.run_folder.shapes import RolloutRow, find_problem
from searchrl.trackers import rows as trackers_rows
from searchrl.trackers.rows import encode_row


def row(step: int) -> dict[str, Any]:
    return {"reward": {"value": step / 10, "n": 2}}


def rollout(step: int, number: int) -> dict[str, Any]:
    """A row of a rollout with every column that there is, one token of the model in each."""
    task = {
        "id": "t", "split": "train", "index": 0, "kind": "k", "slices": ["s"], "difficulty": "d",
        "question": f"{number} ü", "answers": ["a"], "gold_ids": ["p"],
    }  # fmt: skip
    turn = {
        "text": "x", "action": "search", "queries": ["q"], "payload": {"any": 1}, "reason": "",
        "observation": "o", "passages": ["p"], "reward": 0.0, "ranks": [{"p": 1}],
    }  # fmt: skip
    return {
        "rollout_id": f"{step}/{number}", "group_id": "g", "origin": "sampled", "phase": "train",
        "step": step, "env": "corpus", "task": task, "ids": [7], "authors": "M", "turn": [0],
        "policy_version": 0, "sampler_logp": [-0.5], "ratio": [1.0], "entropy": [0.9],
        "advantage": [0.1], "weight": 0.5, "clipped": [0],
        "turns": [turn], "signals": {"s": 1.0},
        "final_answer": "a", "stop_reason": "answered", "reward": 1.0, "scores": {"em": 1.0},
        "drawings": [], "unscored": "why",
        "failure": {"kind": "scoring", "owner": "o", "message": "m"},
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three steps with their rows and trajectories, compressed and not."""
    writer = RunWriter.create(build_config({"seed": 3}), tmp_path / "run")
    writer.write_provenance([], program="train")
    for step in (1, 2, 3):
        rows = [rollout(step, number) for number in range(20)]
        writer.write_rollouts(f"step_{step:06d}", rows, compress=step == 1)
        writer.log(step, row(step), "train")
    writer.write_alarm({"step": 2})
    writer.write_summary({"after": row(3)})
    return writer.path


def test_a_kill_between_a_row_and_its_checksum_damages_nothing(run: Path) -> None:
    line = encode_row({"step": 4, "phase": "train", "metrics": row(4)})
    file, before = run / "metrics.jsonl", (run / "metrics.jsonl").read_bytes()
    file.write_bytes(before + line)
    assert [one["step"] for one in Run(run).metrics] == [1, 2, 3, 4]
    (run / "provenance.json").rename(run / "gone")
    file.write_bytes(before + line[:10])
    assert [one["step"] for one in Run(run).metrics] == [1, 2, 3]  # nobody knows how it was
    (run / "gone").rename(run / "provenance.json")
    for cut in (1, 10, len(line) - 1):
        file.write_bytes(before + line[:cut])
        assert [one["step"] for one in Run(run).metrics] == [1, 2, 3]
    assert find_damage(run) == []


def test_what_was_written_and_is_gone_is_named(run: Path) -> None:
    opened = Run.open(run)
    assert len(list(opened.rollouts("train"))) == 60 and not list(opened.rollouts("after"))
    assert opened.measured("train", 2) == row(2) and opened.measured("after", 2) is None
    for number in (2, 3):
        (run / "rollouts" / f"step_{number:06d}.jsonl").unlink()
    assert find_damage(run) == []
    (said,) = find_damage(run, deep=True)
    assert f"'{run / 'rollouts' / 'step_000002.jsonl'}' is damaged: it is missing, and 1 " in said
    (run / "summary.json").unlink()
    assert [
        f"'{run / 'summary.json'}' is damaged: it is missing" in one for one in find_damage(run)
    ]
    with pytest.raises(DamagedError, match="it is missing"):
        _ = opened.summary
    RunWriter.reopen(run, 1)
    assert find_damage(run, deep=True) == [], "what will be made again is not missed"


def test_rows_that_are_missing_at_the_end_are_seen(run: Path) -> None:
    file = run / "metrics.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(DamagedError, match=r"metrics\.jsonl' is damaged: it has .* bytes"):
        _ = Run(run).metrics
    rows, fault = Run(run).read_metrics()
    assert [one["step"] for one in rows] == [1, 2] and [fault] == find_damage(run)


def test_rows_that_are_gone_or_of_another_kind_are_seen(run: Path) -> None:
    file, alarms = run / "metrics.jsonl", run / "alarms.jsonl"
    file.write_bytes(file.read_bytes() + encode_row({"step": 4, "phase": "train"}))
    rows, fault = Run(run).read_metrics()
    assert len(rows) == 3 and "a line in it is no such row" in fault
    alarms.write_bytes(encode_row({"step": -1}))
    file.unlink()
    gone, other = find_damage(run)
    assert "it is missing" in gone and "alarms.jsonl' is damaged" in other


def test_rollouts_of_a_phase_are_those_whose_rows_say_so(run: Path) -> None:
    other = {**rollout(2, 21), "phase": "during"}
    RunWriter.reopen(run, 3).write_rollouts("step_000003", [rollout(3, 0), other], compress=False)
    assert len(list(Run(run).rollouts("train"))) == 41 and len(list(Run(run).rollouts())) == 42
    assert list(Run(run).rollouts("during")) == []


def test_equal_rows_leave_equal_files(run: Path) -> None:
    """gzip would write the time of day into bytes 4 to 8."""
    assert (run / "rollouts" / "step_000001.jsonl.gz").read_bytes()[4:8] == bytes(4)


def test_a_config_with_settings_that_are_none_is_refused_though_it_is_what_was_written(
    tmp_path: Path,
) -> None:
    writer = RunWriter.create(build_config({}), tmp_path / "run")
    (writer.path / "config.yaml").write_text("sed: 3\n")
    writer.write_provenance([])
    with pytest.raises(ConfigError, match=r"sed(?s:.*)--init-from"):
        read_config_file(writer.path / "config.yaml")


def test_a_digit_that_changed_is_seen(run: Path) -> None:
    for name, old, new in (
        ("metrics.jsonl", '"value": 0.2', '"value": 0.9'),
        ("alarms.jsonl", '"step": 2', '"step": 3'),
        ("summary.json", '"value": 0.3', '"value": 0.8'),
        ("config.yaml", "seed: 3", "seed: 4"),
        ("provenance.json", '"program": "train"', '"program": "drain"'),
    ):
        text = (run / name).read_text("utf-8")
        assert old in text
        (run / name).write_text(text.replace(old, new), "utf-8")
        (said,) = find_damage(run) if name != "provenance.json" else find_damage(run)[:1]
        assert f"'{run / name}'" in said and "damaged" in said, name
        (run / name).write_text(text, "utf-8")
    assert find_damage(run) == []


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("number", [0, 1])
def test_damaged_trajectories_are_never_given(run: Path, number: int, damage: str) -> None:
    file = rollout_files(run)[number]
    DAMAGES[damage](file)
    given: list[Any] = []
    with without_overrides():
        if damage == "missing":
            assert len(list(Run(run).rollouts())) == 40
            return
        with pytest.raises(DamagedError) as caught:
            given.extend(Run(run).rollouts())
    assert str(caught.value).startswith(f"'{file}' is damaged: ")
    assert len(given) == 20 * number, "rows of a damaged file were given"


def places_in(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value in a row, outermost first; what `payload` holds is free."""
    inner = enumerate(value) if isinstance(value, list) else ()
    for key, one in value.items() if isinstance(value, dict) else inner:
        yield (*above, key)
        if key != "payload":
            yield from places_in(one, (*above, key))


@pytest.mark.parametrize("place", list(places_in(rollout(1, 0))), ids=str)
def test_a_row_with_a_value_of_a_wrong_type_is_damage(place: tuple[Any, ...]) -> None:
    """18 places in `score` and `inspect` ended in a traceback."""
    sound = rollout(1, 0)
    assert not find_problem(sound, RolloutRow)
    for wrong in ({"x": []}, math.inf):
        damaged = inner = copy.deepcopy(sound)
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = wrong
        is_free = place[-1] in ("payload", "drawings") and wrong == {"x": []}
        assert bool(find_problem(damaged, RolloutRow)) != is_free, (place, wrong)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ((), {"stop_reason": "bored"}),
        ((), {"reward": 1e300}),
        ((), {"reward": -1e300}),
        ((), {"step": "1"}),
        ((), {"ids": [-1]}),
        ((), {"ids": [2**32]}),
        ((), {"authors": "X"}),
        ((), {"step": -1}),
        (("failure",), {"kind": "tired"}),
        (("task",), {"slices": ["a/b"]}),
        (("task",), {"difficulty": "a b"}),
        (("turns", 0), {"action": "act", "payload": ["x"]}),
        (("turns", 0), {"ranks": [{"p": 0}]}),
    ],
)
def test_a_row_with_a_value_that_no_episode_has_is_damage(
    part: tuple[Any, ...], change: dict[str, Any]
) -> None:
    row = inner = rollout(1, 0)
    for key in part:
        inner = inner[key]
    inner.update(change)
    assert find_problem(row, RolloutRow)


@pytest.mark.parametrize(
    "key", ["authors", "turn", "sampler_logp", "ratio", "entropy", "advantage"]
)
def test_a_row_whose_columns_differ_in_length_is_damage(key: str) -> None:
    problem = find_problem({**rollout(1, 0), key: "" if key == "authors" else []}, RolloutRow)
    assert "its columns differ in length" in problem


def test_rows_and_records_that_runs_do_write_are_no_damage(run: Path) -> None:
    answered = rollout(1, 0)
    answered["turns"][0] |= {"action": "answer", "payload": None, "queries": []}
    assert not find_problem(answered, RolloutRow)
    empty = RunWriter.create(build_config({}), run.parent / "empty")
    empty.write_provenance([])
    (empty.path / "metrics.jsonl").touch()  # it has not evaluated yet
    assert find_damage(empty.path) == [] and Run(empty.path).metrics == []
    for folder in ("checkpoints", "rollouts"):
        (empty.path / folder).rmdir()
    assert looks_like_run(empty.path)
    record = Run(run).provenance | {"plugins": [1]}
    Manifest(record, {}).write(run / "provenance.json")
    with pytest.raises(DamagedError, match=r"no run writes 'plugins\.0'"):
        _ = Run(run).provenance


def test_files_of_other_phases_are_not_read(run: Path) -> None:
    (run / "rollouts" / "eval_after.jsonl").write_text("damage")
    assert len(list(Run(run).rollouts("train"))) == 60
    with pytest.raises(DamagedError):
        list(Run(run).rollouts("after"))
    file = run / "rollouts" / "step_000009.jsonl"
    file.write_bytes(encode_row(rollout(9, 0)) + encode_row(rollout(9, 1))[:-9])
    with pytest.raises(DamagedError, match=r"step_000009\.jsonl' is damaged"):
        list(Run(run).rollouts("train"))


def test_a_run_holds_plain_files_alone(run: Path) -> None:
    os.mkfifo(run / "pipe")
    with pytest.raises(RunFolderError, match="pipe"):
        Run.open(run)
    assert find_fault(run / "pipe") == "it is no ordinary file"


def test_a_row_that_no_run_writes_is_named_with_its_file(run: Path) -> None:
    rows = [rollout(9, 0), {**rollout(9, 1), "reward": "good"}]
    file = run / "rollouts" / "step_000009.jsonl"
    file.write_bytes(b"".join(map(encode_row, rows)))
    with pytest.raises(DamagedError) as caught:
        list(Run(run).rollouts())
    said = str(caught.value)
    assert said.startswith(f"'{file}' is damaged: row 2: ") and "'reward" in said
    assert "delete it" in said and "\n" not in said


def test_a_small_file_that_unpacks_without_end_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 MB can hold 8 GiB, which ended `score` and `runs --verify` in a MemoryError."""
    monkeypatch.setattr(trackers_rows, "MAX_ROW_BYTES", 10_000)
    file = run / "rollouts" / "step_000009.jsonl.gz"
    file.write_bytes(gzip.compress(encode_row(rollout(9, 0)) + b" " * 20_000))
    with pytest.raises(DamagedError) as caught:
        list(Run(run).rollouts())
    said = str(caught.value)
    assert said.startswith(f"'{file}' is damaged: ") and "line 2 has 10,000 bytes or more" in said


def test_a_run_without_one_of_its_two_main_files_is_a_damaged_run_and_not_none(run: Path) -> None:
    """`ask RUN` took the weights into the default environment, `--init-from` no settings."""
    (run / "config.yaml").unlink()
    assert looks_like_run(run)
    for look in (Run.open, Run.find):
        with pytest.raises(DamagedError, match=r"config\.yaml' is damaged: it is missing"):
            look(run)
    assert Run.find(run / "rollouts") is None
    (run / "provenance.json").unlink()
    with pytest.raises(RunFolderError, match="is no run folder"):
        Run.open(run)


def test_a_config_that_cannot_be_read_is_damaged_only_if_it_is_not_what_was_written(
    run: Path,
) -> None:
    flip(run / "config.yaml", 0x80)
    for read in (lambda: Run(run).config, lambda: read_config_file(run / "config.yaml")):
        with pytest.raises(DamagedError, match=r"config\.yaml' is damaged: .*--init-from"):
            read()
    rollouts = {f"rollouts/{file.name}" for file in rollout_files(run)}
    records = {"config.yaml", "metrics.jsonl", "alarms.jsonl", "summary.json"}
    assert Run(run).files.keys() == records | rollouts


@pytest.mark.parametrize("change", ["metrics.jsonl", "provenance.json", "summary.json"])
def test_going_on_sets_a_folder_in_place_of_a_file_aside(run: Path, change: str) -> None:
    DAMAGES["folder"](run / change)
    said: list[str] = []
    writer = RunWriter.reopen(run, 2, on_note=said.append)
    writer.write_provenance([], program="train")
    writer.log(3, row(3), "train")
    assert (run / f"{change}.damaged").is_dir()
    assert not any("damaged" in text for text in find_damage(run))
    assert [one["step"] for one in Run(run).metrics][-1] == 3
    assert change == "summary.json" or str(run / change) in said[0]
