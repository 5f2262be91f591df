"""From a name to the folder of a collection: a path, a folder of `data`, the hub, or `demo`.

Owns the names of BEIR's data sets on the Hugging Face hub (`BeIR/NAME`, `BeIR/NAME-qrels`). The
folder `demo` beside this file is a made-up collection whose questions differ in what helps them: a
third use the words of one passage (a single search is best), a third need the passage that another
one names (following is best), and a third use other words than the passage (broadening is best). No
figure of it says anything of real collections.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from searchrl import ConfigError, DataError, suggest, suggest_path

DEMO = "demo"

BEIR = ("nfcorpus", "scifact", "fiqa", "arguana", "scidocs")
"""Collections that are known by name. All are small enough for one machine."""

_SPLITS = {"train": "train", "validation": "dev", "test": "test"}
"""Splits on the hub -> what BEIR's files call them."""


def find_collection(
    name: str, data: Path | None = None, *, hub: bool = False, cache: Path | None = None
) -> Path:
    """The folder of a collection; the arguments are the settings of the environment.

    Raises:
        ConfigError: the package `datasets` is missing.
        DataError: there is no such collection, or the hub could not be read; says what to do.
    """
    if name == DEMO:
        return Path(__file__).with_name(DEMO)
    for folder in (Path(name).expanduser(), *([data / name] if data else [])):
        if folder.exists():
            return folder
    where = f" in '{data}'" if data else ""
    if name not in BEIR:
        near = suggest_path(data / name if data else name) or suggest(name, [*BEIR, DEMO])
        raise DataError(
            f"there is no collection '{name}'{where}.{near} Set env.collection to a folder or a "
            "name"
        )
    if not hub:
        raise DataError(
            f"there is no collection '{name}'{where}. Put its BEIR folder (corpus.jsonl, "
            "queries.jsonl, qrels/) there and set env.data, or set env.hub=true to download it"
        )
    folder = (cache or default_cache()) / "beir" / name
    if not folder.is_dir():
        _download(name, folder)
    return folder


def default_cache() -> Path:
    """The user's cache folder for collections, vectors and reformulations."""
    import platformdirs

    return platformdirs.user_cache_path("searchrl") / "control"


def _download(name: str, folder: Path) -> None:
    """Write the files of a collection; the folder is whole or not there."""
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            "env.hub needs the package datasets, which is not installed. "
            "Run: pip install 'searchrl-control[hub]'"
        ) from None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as half:
        files = Path(half) / name
        (files / "qrels").mkdir(parents=True)
        try:
            for part in ("corpus", "queries"):
                rows: Any = datasets.load_dataset(f"BeIR/{name}", part, split=part)
                rows.to_json(files / f"{part}.jsonl")
            judged: Any = datasets.load_dataset(f"BeIR/{name}-qrels")
            for split in _SPLITS.keys() & judged.keys():
                judged[split].to_csv(files / "qrels" / f"{_SPLITS[split]}.tsv", sep="\t")
        except Exception as error:  # of the network, of the hub, of the library
            raise DataError(
                f"the collection '{name}' could not be downloaded: {type(error).__name__}: "
                f"{error}. Put its BEIR folder where env.data points to, or try again"
            ) from error
        if not folder.is_dir():  # else another process was quicker: its files are the same
            files.rename(folder)
