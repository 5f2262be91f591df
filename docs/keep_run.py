"""Copies what is small of a finished run into a folder of the repository, as a run folder.

Owns which files and which rollouts are kept, and that none of them names a machine. The figures
stay as they were; of the rollouts a few steps and tasks are kept. What was rewritten gets its
checksums anew, so `searchrl inspect` reads the folder like any other run. Caller: `record_run.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from searchrl import Run
from searchrl.run_folder.manifest import Manifest, encode_json, make_entry
from searchrl.run_folder.rollouts import write_rollouts

STEPS = (1, 5)
"""Training steps whose rollouts are kept, besides the last one and those of alarms."""
NUM_TASKS = 16
"""Of the evaluations before and after training, the rollouts of so many tasks are kept."""


def keep_run(run: Run, folder: Path, name: str) -> None:
    """Make a folder hold the facts of a run, and nothing else; `name` is what pages call the run.

    Raises:
        SystemExit: if the run has not finished, or has no trajectories.
    """
    if "after" not in run.summary:
        raise SystemExit(f"'{run.path}' has not finished: it has no summary.json")
    if not any(run.rollouts("after")):
        raise SystemExit(f"'{run.path}' has no trajectories: train it with log.rollouts on")
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "rollouts").mkdir(parents=True)
    config = without_paths(run.config.to_dict(), run.path, name) | {"run_dir": None}
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(text, "utf-8")
    for file in ("metrics.jsonl", "alarms.jsonl"):
        if (run.path / file).is_file():
            shutil.copy(run.path / file, folder)
    for file, rows in choose_rollouts(run):
        write_rollouts(folder / "rollouts" / f"{file}.jsonl.gz", rows)
    facts = without_paths({**run.provenance}, run.path, name)
    facts.pop("process", None)  # names the machine
    summary = without_paths(run.summary, run.path, name)
    (folder / "summary.json").write_bytes(encode_json(summary))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    entries = {path.relative_to(folder).as_posix(): make_entry(path) for path in files}
    Manifest(facts, entries).write(folder / "provenance.json")


def choose_rollouts(run: Run) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The rollouts that are kept, by the name of their file."""
    steps: dict[int, list[dict[str, Any]]] = {step: [] for step in kept_steps(run)}
    for row in run.rollouts("train"):
        if row["step"] in steps:
            steps[row["step"]].append(row)
    for phase in ("before", "after"):
        rows = [row for row in run.rollouts(phase) if row["task"]["index"] < NUM_TASKS]
        yield f"eval_{phase}", rows
    for step, rows in steps.items():
        yield f"step_{step:06d}", rows


def kept_steps(run: Run) -> list[int]:
    """The training steps whose rollouts are kept."""
    return sorted({*STEPS, *(one["step"] for one in run.alarms), int(run.summary["steps"])})


def without_paths(value: Any, folder: Path, name: str) -> Any:
    """A copy in which no path says where on a machine something lay, nor which kernel it had.

    The run's own folder becomes `name`; of another path what follows its last `searchrl`
    folder is kept, else its name.
    """
    if isinstance(value, Mapping):
        short = {key: without_paths(one, folder, name) for key, one in value.items()}
        if "platform" in short:
            words = str(short["platform"]).split("-")
            kept = next((w for w in words if w in ("x86_64", "aarch64", "arm64", "AMD64")), "")
            short["platform"] = f"{words[0]} {kept}".strip()
        return short
    if isinstance(value, list):
        return [without_paths(one, folder, name) for one in value]
    if not isinstance(value, str):
        return value
    for own in (str(folder.absolute()), str(folder)):
        value = value.replace(own, name)
    if value.startswith("file://"):
        return "."
    path = PurePosixPath(value)
    if not path.is_absolute():
        return value
    if path.name == "__main__.py" or path.parent.name == "bin":
        return "searchrl"
    last = [n for n, part in enumerate(path.parts) if part == "searchrl"]
    return "/".join(path.parts[last[-1] :]) if last else path.name
