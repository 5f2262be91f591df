"""Records that no run wrote, under a checksum that is right: one message, never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import call, complaint
from reseal import reseal, unfinish

from searchrl.errors import DamagedError
from searchrl.run_folder import Run

pytestmark = pytest.mark.usefixtures("threads_restored")

STATE = "checkpoints/step_000001/state.json"


@pytest.fixture
def edit(micro_run: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of a run with a value put into one of its records, sealed by whoever did that."""

    def edited(name: str, *keys: str, value: Any) -> Path:
        run = tmp_path / "run"
        shutil.copytree(micro_run, run)
        record = inner = json.loads((run / name).read_text("utf-8"))
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        (run / name).write_text(json.dumps(record), "utf-8")
        reseal(run)
        return run

    return edited


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("after", "format"), [[1]]),
        (("after", "format"), {}),
        (("before", "reward"), -1),
        (("after",), "good"),
        (("steps",), -1),
    ],
)
def test_summary(edit: Callable[..., Path], keys: tuple[str, ...], value: Any) -> None:
    run = edit("summary.json", *keys, value=value)
    with pytest.raises(DamagedError, match=rf"summary\.json' is damaged: .*'{'.'.join(keys)}"):
        _ = Run(run).summary


def test_provenance(edit: Callable[..., Path]) -> None:
    run = edit("provenance.json", "duration_s", value="long")
    # As after any damage, the run goes on, and the file is kept for the user to look at.
    unfinish(run)
    resumed = call("train", "--resume", run, env={"COLUMNS": "4000"})
    assert resumed.exit_code == 0, resumed.output
    assert "no run writes 'duration_s' like this" in resumed.output
    assert (run / "provenance.json.damaged").is_file()


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("step",), "x"),
        (("watched",), {}),
        (("before",), -1),
        (("before", "format"), "x"),
        (("best",), {"step": 1}),
        (("rollbacks",), [{"step": 1}]),
        (("own",), 1),
    ],
)
def test_state(edit: Callable[..., Path], keys: tuple[str, ...], value: Any) -> None:
    run = edit(STATE, *keys, value=value)
    unfinish(run)
    text = complaint("train", "--resume", run)
    assert f"'{run / STATE}' is damaged: no run writes '{'.'.join(keys)}" in text


@pytest.mark.parametrize("part", ["optimiser", "weights"])
def test_a_checkpoint_of_another_model(edit: Callable[..., Path], part: str) -> None:
    from safetensors.torch import load_file, save_file

    run = edit(STATE, "step", value=1)
    folder = run / "checkpoints" / "step_000001"
    if part == "optimiser":
        (folder / "optimizer.json").write_text('["dict", [["step", 1]]]')
    else:
        (path,) = (folder / "policy").glob("*.safetensors")
        save_file({name: tensor[:1].clone() for name, tensor in load_file(path).items()}, path)
    reseal(run)
    unfinish(run)
    text = complaint("train", "--resume", run)
    assert "does not fit this model and its optimiser" in text and "--init-from" in text
