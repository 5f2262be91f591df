"""A collection as the environment needs it: from a name to passages and judged questions by split.

A name is a path, a folder of `data`, a data set of BEIR on the Hugging Face hub (`BeIR/NAME`,
`BeIR/NAME-qrels`), or `demo`. Splits are those of a BEIR folder that has judgements for both, or a
draw by a seed. Files are read by `searchrl_retrieval.evaluation`. The folder `demo` is made up: a
third of its questions use the words of one passage (a single search is best), a third need the
passage that another one names (following), a third use other words than the passage (broadening).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from searchrl_retrieval.evaluation.collection import Collection, Judged, read_collection

from searchrl import DataError, suggest, suggest_path
from searchrl.contracts import Passage
from searchrl.data import find_judgements

TRAIN, TEST = "train", "test"
SPLITS = (TRAIN, TEST)

SEED = 18
TRAIN_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class JudgedCollection:
    """Passages, the questions of both splits, and notes on their draw and on what is left out."""

    passages: Sequence[Passage]
    questions: Mapping[str, tuple[Judged, ...]]
    notes: list[str]


def read_judged(path: Path, seed: int = SEED, train_share: float = TRAIN_SHARE) -> JudgedCollection:
    """Read a collection."""
    judged = find_judgements(path) if path.is_dir() else {}
    if {TRAIN, TEST} <= judged.keys():
        train, test = (read_collection(path, split) for split in SPLITS)
        notes = list(dict.fromkeys(train.notes + test.notes))
        questions = {TRAIN: _list(train), TEST: _list(test)}
        tested = {one.id for one in questions[TEST]}
        trained = tuple(one for one in questions[TRAIN] if one.id not in tested)
        if both := len(questions[TRAIN]) - len(trained):
            notes.append(f"training questions that are test questions too, left out: {both}")
        if not trained or not tested:
            raise DataError(f"'{path}': no training question, or no test question, can be used")
        return JudgedCollection(test.passages, questions | {TRAIN: trained}, notes)
    # Of a BEIR folder with one of the two, that one is drawn from; a validation split is not mixed
    # into it, unless there is nothing else.
    only = next((split for split in (*SPLITS, *judged) if split in judged), "")
    whole = read_collection(path, only)
    notes = [*whole.notes, "training and test questions are drawn by env.split_seed"]
    if others := sorted(judged.keys() - {only}):
        notes.append(f"they are drawn from split {only}; not used: {', '.join(others)}")
    by_id = {one.id: one for one in _list(whole)}
    if unjudged := len(whole.questions) - len(by_id):
        notes.append(f"questions without a relevant passage, left out: {unjudged}")
    halves = zip(SPLITS, draw_split(by_id, seed, train_share), strict=True)
    questions = {split: tuple(by_id[one] for one in ids) for split, ids in halves}
    return JudgedCollection(whole.passages, questions, notes)


def draw_split(
    ids: Iterable[str], seed: int = SEED, train_share: float = TRAIN_SHARE
) -> tuple[list[str], list[str]]:
    """Split ids of questions, sorted and shuffled; `train_share`, rounded down, is for training."""
    ordered = sorted(ids)
    num_train = math.floor(train_share * len(ordered))
    if not 0 < num_train < len(ordered):
        raise DataError(
            f"{len(ordered)} questions cannot be split with a training share of {train_share:g}; "
            "expected at least one on either side"
        )
    Random(seed).shuffle(ordered)
    return ordered[:num_train], ordered[num_train:]


def _list(collection: Collection) -> tuple[Judged, ...]:
    """The questions that have a relevant passage: for the others, all lists are alike."""
    return tuple(
        one for one in collection.questions if any(grade > 0 for grade in one.qrels.values())
    )


DEMO = "demo"

BEIR = ("nfcorpus", "scifact", "fiqa", "arguana", "scidocs")
"""Collections that are known by name, each small enough for one machine."""


def find_collection(name: str, data: Path | None, *, hub: bool, cache: Path) -> Path:
    """The folder of a collection; the arguments are the settings of the environment."""
    if name == DEMO:
        return Path(__file__).with_name(DEMO)
    for folder in (Path(name).expanduser(), *([data / name] if data else [])):
        if folder.exists():
            return folder
    if not (hub and name in BEIR):
        where = f" in '{data}'" if data else ""
        near = suggest_path(data / name if data else name) or suggest(name, [*BEIR, DEMO])
        raise DataError(
            f"there is no collection '{name}'{where}.{near} Set env.collection to a folder or a "
            f"name; env.hub=true downloads {', '.join(BEIR)}"
        )
    folder = cache / "beir" / name
    if not folder.is_dir():
        _download(name, folder)
    return folder


def _download(name: str, folder: Path) -> None:
    """Write the files of a collection; the folder is whole or not there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as half:
        files = Path(half) / name
        (files / "qrels").mkdir(parents=True)
        try:
            import datasets

            for part in ("corpus", "queries"):
                rows: Any = datasets.load_dataset(f"BeIR/{name}", part, split=part)
                rows.to_json(files / f"{part}.jsonl")
            judged: Any = datasets.load_dataset(f"BeIR/{name}-qrels")
            for split, table in judged.items():
                table.to_csv(files / "qrels" / f"{split}.tsv", sep="\t")
        except Exception as error:  # from the network, the hub or the library, or without it
            raise DataError(
                f"the collection '{name}' could not be downloaded: {type(error).__name__}: "
                f"{error}. It needs: pip install 'searchrl-control[hub]'; or put its BEIR folder "
                "where env.data points to"
            ) from error
        if not folder.is_dir():  # else another process was quicker: its files are the same
            files.rename(folder)
