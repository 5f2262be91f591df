"""Training and test questions by a seed, written down before anything is trained.

Owns the draw and the file of it. Ids are sorted before they are shuffled, so neither the order of a
file nor the names of passages decides; the same ids, seed and share always give the same split. A
file that says something else than the draw is an error, not a choice.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

from searchrl import DataError

SEED = 18
TRAIN_SHARE = 0.5


class Halves(NamedTuple):
    """The ids of the training and of the test questions, each in the order of the draw."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    seed: int
    train_share: float


def draw_halves(ids: Iterable[str], seed: int = SEED, train_share: float = TRAIN_SHARE) -> Halves:
    """Split the ids of questions; `train_share` of them, rounded down, are for training.

    Raises:
        DataError: an id is there twice, or a side would be empty.
    """
    ordered = sorted(ids)
    if len(set(ordered)) < len(ordered):
        twice = next(one for one, other in itertools.pairwise(ordered) if one == other)
        raise DataError(f"the question '{twice}' is there twice, so it could be on both sides")
    num_train = math.floor(train_share * len(ordered))
    if not 0 < num_train < len(ordered):
        raise DataError(
            f"{len(ordered)} questions cannot be split with a training share of {train_share:g}; "
            "expected at least one on either side"
        )
    Random(seed).shuffle(ordered)
    return Halves(tuple(ordered[:num_train]), tuple(ordered[num_train:]), seed, train_share)


def write_halves(halves: Halves, path: Path) -> None:
    """Write a split down; if the file is there already, it must say the same.

    Raises:
        DataError: it says something else.
    """
    told = {
        "seed": halves.seed,
        "train_share": halves.train_share,
        "sha256": fingerprint(halves),
        "train": list(halves.train),
        "test": list(halves.test),
    }
    if path.is_file():
        ensure_written(halves, path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def ensure_written(halves: Halves, path: Path) -> None:
    """Raise `DataError` if a file of a split is not that of this one."""
    try:
        told = json.loads(path.read_text("utf-8"))
        written = (tuple(told["train"]), tuple(told["test"]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"'{path}' is no file of a split: {error}") from error
    if written != (halves.train, halves.test):
        raise DataError(
            f"'{path}' says another split than the questions with seed {halves.seed} and a "
            f"training share of {halves.train_share:g} give. What was trained on one must not be "
            "tested on the other: use the seed and the data of that file, or write a new file"
        )


def fingerprint(halves: Halves) -> str:
    """SHA-256 of the two lists of ids."""
    said = json.dumps([halves.train, halves.test], ensure_ascii=True)
    return hashlib.sha256(said.encode()).hexdigest()
