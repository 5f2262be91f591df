"""Data that need pyarrow or `datasets`: Parquet, Arrow, folders of `save_to_disk`, and the Hub."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from searchrl.data.cells import without_nan
from searchrl.data.problems import BadRow
from searchrl.errors import ConfigError

_BATCH = 1024
"""Rows that are Python objects at a time."""
_HUB_ID = re.compile(r"[\w.-]+/[\w-]+(?:\.\d[\w.-]*)?(?::[\w.-]+)?")


def read_columns(path: Path) -> Iterator[Any]:
    """The rows of a Parquet file or an Arrow stream; `BadRow` if it is damaged."""
    pyarrow = _import("pyarrow", path)
    is_parquet = path.suffix.lower() == ".parquet"
    try:
        if is_parquet:
            batches = _import("pyarrow.parquet", path).ParquetFile(path).iter_batches(_BATCH)
        else:
            batches = _import("pyarrow.ipc", path).open_stream(pyarrow.memory_map(str(path)))
        for batch in batches:
            for start in range(0, batch.num_rows, _BATCH):
                yield from map(without_nan, batch.slice(start, _BATCH).to_pylist())
    except (OSError, pyarrow.ArrowException) as error:
        raise BadRow(f"unreadable {'Parquet' if is_parquet else 'Arrow'}: {error}") from error


def _split_hub_id(path: Path) -> tuple[str, str | None] | None:
    """Name and configuration of a Hub id (`hotpotqa/hotpot_qa:distractor`); None for a path."""
    name, _, config = str(path).partition(":")
    if not _HUB_ID.fullmatch(str(path)) or os.path.exists(path):
        return None
    return (name, config or None) if config or not os.path.exists(path.parent) else None


def is_loadable(path: Path) -> bool:
    """True for what `load_splits` reads: a folder of `save_to_disk`, or an id on the Hub."""
    is_saved = any(os.path.isfile(path / name) for name in ("state.json", "dataset_dict.json"))
    return is_saved or _split_hub_id(path) is not None


def load_splits(path: Path) -> Mapping[str, Any]:
    """The splits of a `save_to_disk` folder or of a Hub id; `BadRow` if it cannot be loaded."""
    datasets = _import("datasets", path)
    hub = _split_hub_id(path)
    try:
        loaded = datasets.load_dataset(*hub) if hub else datasets.load_from_disk(str(path))
    except Exception as error:  # of the network, the Hub, or a damaged file
        where = "no file or folder here, and not loaded from the Hub" if hub else "cannot be loaded"
        raise BadRow(f"{where}: {type(error).__name__}: {error}") from error
    return loaded if isinstance(loaded, Mapping) else {"": loaded}


def to_rows(split: Any) -> Iterator[Any]:
    """The rows of one split."""
    for table in split.with_format("arrow").iter(_BATCH):
        yield from map(without_nan, table.to_pylist())


def _import(name: str, path: Path) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(
            f"{path}: reading this needs {name.partition('.')[0]}, which is not installed. "
            "Run: pip install 'searchrl[data]'"
        ) from None
