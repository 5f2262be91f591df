"""Parquet files, and the Arrow folders that `datasets` writes with `save_to_disk`.

Owns both readers, in batches, on pyarrow alone: `datasets` is not needed to read what it wrote, an
Arrow stream per file and a `state.json` that lists them. pyarrow is the extra `parquet`, imported
when such a file is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from searchrl.envs.formats.problems import Problems
from searchrl.envs.formats.row import Row
from searchrl.errors import ConfigError

STATE, SPLITS = "state.json", "dataset_dict.json"
"""What says that a folder is a data set, or one per split."""

_BATCH = 1024
"""Rows that are Python objects at a time."""


def read_parquet(path: Path, problems: Problems) -> Iterator[Row]:
    """The rows of a Parquet file; their line is the number of the row.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    pyarrow = _import_pyarrow(path, "Parquet")
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                for value in batch.to_pylist():
                    number += 1
                    yield Row(number, value)
    except (OSError, pyarrow.ArrowException) as error:
        problems.add(path, 0, f"unreadable Parquet: {error}")


def read_arrow(path: Path, problems: Problems) -> Iterator[Row]:
    """The rows of one Arrow stream (`.arrow`), or of a folder that `save_to_disk` wrote.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    pyarrow = _import_pyarrow(path, "Arrow")
    number = 0
    for file in [path] if os.path.isfile(path) else _find_files(path, problems):
        try:
            with pyarrow.memory_map(str(file)) as source:
                for batch in pyarrow.ipc.open_stream(source):
                    for start in range(0, batch.num_rows, _BATCH):
                        for value in batch.slice(start, _BATCH).to_pylist():
                            number += 1
                            yield Row(number, value)
        except (OSError, pyarrow.ArrowException) as error:
            problems.add(file, 0, f"unreadable Arrow: {error}")


def is_arrow_folder(path: Path) -> bool:
    """Whether `save_to_disk` of one data set wrote this folder."""
    return os.path.isfile(path / STATE)


def find_splits(path: Path, problems: Problems) -> dict[str, Path]:
    """The folder of each split, if `save_to_disk` of several splits wrote this folder; else {}."""
    if not os.path.isfile(path / SPLITS):
        return {}
    facts = _read_facts(path / SPLITS, problems)
    names = facts.get("splits")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        problems.add(path / SPLITS, 0, "does not list the splits of the data set")
        return {}
    return {name: path / name for name in names}


def _find_files(folder: Path, problems: Problems) -> list[Path]:
    facts = _read_facts(folder / STATE, problems)
    if facts.get("_indices_data_files"):
        problems.add(
            folder, 0, "keeps its rows in another order than its files (an old layout of "
            "`datasets`); load it and save it again, or export it with to_json"
        )  # fmt: skip
        return []
    entries = facts.get("_data_files")
    try:
        return [folder / str(entry["filename"]) for entry in entries or ()]
    except (TypeError, KeyError):
        problems.add(folder / STATE, 0, "does not list the files of the data set")
        return []


def _read_facts(path: Path, problems: Problems) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        problems.add(path, 0, f"cannot be read: {error}")
        return {}
    return facts if isinstance(facts, dict) else {}


def _import_pyarrow(path: Path, what: str) -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            f"{path}: reading {what} needs pyarrow, which is not installed. "
            "Run: pip install pyarrow"
        ) from None
    return pyarrow
