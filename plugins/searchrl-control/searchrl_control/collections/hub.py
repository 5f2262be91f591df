"""BEIR collections from the Hugging Face hub, as the folders that BEIR itself writes.

Owns the names of the data sets there (`BeIR/NAME` and `BeIR/NAME-qrels`) and the files that are
written. A download is whole or not there: it is made beside its place and moved. Needs the package
`datasets`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from searchrl import ConfigError, DataError

BEIR = ("nfcorpus", "scifact", "fiqa", "arguana", "scidocs")
"""Collections that are known by name. All are small enough for one machine."""

_SPLITS = ("train", "validation", "test")
_FILES = {"validation": "dev"}
"""Splits that BEIR's files call by another name."""


def download_beir(name: str, cache: Path) -> Path:
    """The folder of a collection below `cache`; downloaded if it is not there yet.

    Raises:
        ConfigError: the package `datasets` is missing.
        DataError: the hub could not be read.
    """
    folder = cache / "beir" / name
    if (folder / "corpus.jsonl").is_file():
        return folder
    datasets = _import_datasets()
    half = folder.with_name(f"{name}.{os.getpid()}.half")
    shutil.rmtree(half, ignore_errors=True)
    (half / "qrels").mkdir(parents=True)
    try:
        for part in ("corpus", "queries"):
            rows = datasets.load_dataset(f"BeIR/{name}", part, split=part)
            _write(half / f"{part}.jsonl", map(_plain, rows))
        judged = datasets.load_dataset(f"BeIR/{name}-qrels")
    except Exception as error:  # of the network, of the hub, of the library
        shutil.rmtree(half, ignore_errors=True)
        raise DataError(
            f"the collection '{name}' could not be downloaded: {type(error).__name__}: {error}. "
            f"Put its BEIR folder where env.data points to, or try again"
        ) from error
    for split in _SPLITS:
        if split in judged:
            file = half / "qrels" / f"{_FILES.get(split, split)}.tsv"
            file.write_text(_table(judged[split]), encoding="utf-8")
    try:
        half.rename(folder)
    except OSError:  # another process was quicker: its files are the same
        shutil.rmtree(half, ignore_errors=True)
    return folder


def _plain(row: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(row.get(key) or "") for key in ("_id", "title", "text")}


def _write(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [f"{row['query-id']}\t{row['corpus-id']}\t{row['score']}" for row in rows]
    return "\n".join(lines) + "\n"


def _import_datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            "env.hub needs the package datasets, which is not installed. "
            "Run: pip install 'searchrl-control[hub]'"
        ) from None
    return datasets
