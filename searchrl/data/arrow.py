"""What needs pyarrow or `datasets`: Parquet, Arrow, folders of `save_to_disk`, and the Hub.

Both are in the extra `data` and imported when such a file is read.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from searchrl.data.problems import BadRow
from searchrl.errors import ConfigError

_BATCH = 1024
"""Rows that are Python objects at a time."""
_HUB_ID = re.compile(r"(?P<name>[\w.-]+/[\w-]+(?:\.\d[\w.-]*)?)(?P<config>:[\w.-]+)?")


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
                yield from batch.slice(start, _BATCH).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise BadRow(f"unreadable {'Parquet' if is_parquet else 'Arrow'}: {error}") from error


def is_saved(path: Path) -> bool:
    """Whether `save_to_disk` of `datasets` wrote this folder."""
    return any(os.path.isfile(path / name) for name in ("state.json", "dataset_dict.json"))


def split_hub_id(path: Path) -> tuple[str, str] | None:
    """The name and the configuration of an id such as `hotpotqa/hotpot_qa:distractor`.

    None for a path: one that exists, or whose folder does. With a configuration the name may be
    that of a folder, which `datasets` then reads.
    """
    match = _HUB_ID.fullmatch(str(path))
    if (
        match is None
        or os.path.exists(path)
        or (not match["config"] and os.path.exists(path.parent))
    ):
        return None
    return match["name"], (match["config"] or "").lstrip(":")


def is_loadable(path: Path) -> bool:
    """Whether `load_splits` reads it."""
    return is_saved(path) or split_hub_id(path) is not None


def load_splits(path: Path) -> Mapping[str, Any]:
    """The splits of a `save_to_disk` folder or of an id on the Hub, as `datasets` has them.

    Raises:
        BadRow: `datasets` cannot load it.
        ConfigError: `datasets` is not installed.
    """
    datasets = _import("datasets", path)
    hub = split_hub_id(path)
    try:
        if hub:
            loaded = datasets.load_dataset(hub[0], hub[1] or None)
        else:
            loaded = datasets.load_from_disk(str(path))
    except Exception as error:  # of the network, the Hub, or a damaged file
        where = "no file or folder here, and not loaded from the Hub" if hub else "cannot be loaded"
        told = str(error).partition("\n")[0]
        raise BadRow(f"{where}: {type(error).__name__}: {told}") from error
    return loaded if isinstance(loaded, Mapping) else {"": loaded}


def to_rows(split: Any) -> Iterator[Any]:
    """The rows of one split."""
    for table in split.with_format("arrow").iter(_BATCH):
        yield from table.to_pylist()


def tell_folder(path: Path) -> list[str]:
    """A sentence if what looks like an id of the Hub is a folder here, which is then read."""
    match = _HUB_ID.fullmatch(str(path))
    if match is None or not os.path.isdir(match["name"]):
        return []
    return [f"{path} is read from the folder '{match['name']}' here, not from the Hub"]


def _import(name: str, path: Path) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(
            f"{path}: reading this needs {name.partition('.')[0]}, which is not installed. "
            "Run: pip install 'searchrl[data]'"
        ) from None
