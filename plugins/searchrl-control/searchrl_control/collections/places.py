"""From a name to the folder of a collection: a path, a folder of `data`, the hub, or `demo`.

Owns the names of BEIR's data sets on the Hugging Face hub (`BeIR/NAME`, `BeIR/NAME-qrels`), and the
made-up collection: small, offline, with questions that differ in what helps them. A third use the
words of one passage (a single search is best), a third need the passage that another one names
(following is best), and a third use other words than the passage (broadening is best). It is for
first steps and tests; no figure of it says anything of real collections. What is downloaded or made
up is whole or not there: it is written beside its place and moved.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from searchrl import ConfigError, DataError, suggest, suggest_path

BEIR = ("nfcorpus", "scifact", "fiqa", "arguana", "scidocs")
"""Collections that are known by name. All are small enough for one machine."""

_SPLITS = {"train": "train", "validation": "dev", "test": "test"}
"""Splits on the hub -> what BEIR's files call them."""


def find_collection(
    name: str, data: Path | None = None, *, hub: bool = False, cache: Path | None = None
) -> Path:
    """The folder of a collection.

    Args:
        name: a path, the name of a folder in `data`, a name of BEIR, or `demo`.
        data: a folder with collections by name, such as `datasets/scifact`.
        hub: whether one of BEIR may be downloaded from the Hugging Face hub.
        cache: where what is downloaded or made up lies; None: in the user's cache folder.

    Raises:
        ConfigError: the package `datasets` is missing.
        DataError: there is no such collection, or the hub could not be read; says what to do.
    """
    cache = cache or default_cache()
    if name == DEMO:
        return _write_once(cache / f"demo-{VERSION}", write_demo)
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
    return _write_once(cache / "beir" / name, lambda folder: _download(name, folder))


def default_cache() -> Path:
    """The user's cache folder for collections, vectors and reformulations."""
    import platformdirs

    return platformdirs.user_cache_path("searchrl") / "control"


def _write_once(folder: Path, write: Callable[[Path], None]) -> Path:
    """A folder that `write` fills if it is not there yet."""
    if (folder / "corpus.jsonl").is_file():
        return folder
    half = folder.with_name(f"{folder.name}.{os.getpid()}.half")
    shutil.rmtree(half, ignore_errors=True)
    (half / "qrels").mkdir(parents=True)
    try:
        write(half)
        half.rename(folder)
    except Exception:
        shutil.rmtree(half, ignore_errors=True)
        if not folder.is_dir():  # else another process was quicker: its files are the same
            raise
    return folder


def _download(name: str, folder: Path) -> None:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            "env.hub needs the package datasets, which is not installed. "
            "Run: pip install 'searchrl-control[hub]'"
        ) from None
    try:
        for part in ("corpus", "queries"):
            rows: Any = datasets.load_dataset(f"BeIR/{name}", part, split=part)
            rows.to_json(folder / f"{part}.jsonl")
        judged: Any = datasets.load_dataset(f"BeIR/{name}-qrels")
        for split in _SPLITS.keys() & judged.keys():
            judged[split].to_csv(folder / "qrels" / f"{_SPLITS[split]}.tsv", sep="\t")
    except Exception as error:  # of the network, of the hub, of the library
        raise DataError(
            f"the collection '{name}' could not be downloaded: {type(error).__name__}: {error}. "
            "Put its BEIR folder where env.data points to, or try again"
        ) from error


DEMO = "demo"

VERSION = 1
"""In the name of the folder: other texts are another folder."""

_NAMES = "Aldin Berrow Corva Dunmere Elsing Farrow Glenby Hartle Iving Jorvan Kelda Lorne".split()
_NAMES += (
    "Merrin Nostra Orwick Penlow Quarle Rostin Selby Tarven Ulster Varrow Wexley Yarlan".split()
)
_TRADES = (
    ("fishing", "trawling"),
    ("weaving", "textile"),
    ("mining", "quarrying"),
    ("brewing", "beer"),
)
_GOODS = "salt copper wool glass timber amber barley honey".split()
_LANDMARKS = "lighthouse abbey mill fortress observatory aqueduct".split()


def write_demo(folder: Path) -> None:
    """Write the collection as a BEIR folder, whose folder `qrels` is there."""
    passages, questions = make_demo()
    asked = [{"_id": one["_id"], "text": one["text"]} for one in questions]
    for name, rows in (("corpus", passages), ("queries", asked)):
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    for split, of_split in (("train", questions[::2]), ("test", questions[1::2])):
        lines = [f"{one['_id']}\t{gold}\t1\n" for one in of_split for gold in one["gold"].split()]
        text = "query-id\tcorpus-id\tscore\n" + "".join(lines)
        (folder / "qrels" / f"{split}.tsv").write_text(text, encoding="utf-8")


def make_demo() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The passages and the questions, whose `gold` are ids of passages, by a fixed seed."""
    rng = Random("searchrl-control/demo")
    people = [f"{rng.choice('AEILMNORST')}. {name}son" for name in _NAMES]
    passages: list[dict[str, str]] = []
    questions: list[dict[str, str]] = []
    for number, name in enumerate(_NAMES):
        trade, other = _TRADES[number % len(_TRADES)]
        good, sight = _GOODS[number % len(_GOODS)], _LANDMARKS[number % len(_LANDMARKS)]
        person, year = people[number], 1600 + 7 * number
        town, builder = f"town-{number}", f"person-{number}"
        passages += [
            {
                "_id": town,
                "title": name,
                "text": f"{name} is a town that lives from {trade} and sells {good}. "
                f"Its {sight} was designed by {person}.",
            },
            {
                "_id": builder,
                "title": person,
                "text": f"{person} was an architect, born in {year} on an island, who studied "
                f"law before turning to stone.",
            },
            {
                "_id": f"fair-{number}",
                "title": f"Fair of week {number}",
                "text": f"Every autumn, traders of {good} and {other} meet at a fair with music.",
            },
        ]
        asked = (
            (f"Which good does the town {name} sell?", town),
            (f"When was the architect of the {sight} of {name} born?", f"{town} {builder}"),
            (f"meeting of dealers in {other} and {good} with songs", f"fair-{number}"),
        )
        for kind, (text, gold) in enumerate(asked):
            questions.append({"_id": f"q{number}-{kind}", "text": text, "gold": gold})
    rng.shuffle(passages)
    return passages, questions
