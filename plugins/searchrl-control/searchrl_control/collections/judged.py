"""A collection as the environment needs it: passages, and judged questions by split.

Owns which splits there are: those of a BEIR folder that has judgements for both, or a draw by a
seed (`halves`). Files are read by `searchrl_retrieval.evaluation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from searchrl_retrieval.evaluation.collection import Collection, read_collection

from searchrl import DataError
from searchrl.contracts import Passage
from searchrl.data import find_judgements
from searchrl_control.collections.halves import SEED, TRAIN_SHARE, Halves, draw_halves

TRAIN, TEST = "train", "test"
SPLITS = (TRAIN, TEST)


@dataclass(frozen=True, slots=True)
class Judged:
    """One question, and how relevant each passage is to it: above 0 is relevant."""

    id: str
    text: str
    qrels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JudgedCollection:
    """Passages, and the questions of both splits.

    `halves` is the draw that made the splits; None: the folder has them.
    """

    name: str
    passages: Sequence[Passage]
    questions: Mapping[str, tuple[Judged, ...]]
    halves: Halves | None = None
    notes: tuple[str, ...] = ()


def read_judged(
    name: str, path: Path, seed: int = SEED, train_share: float = TRAIN_SHARE
) -> JudgedCollection:
    """Read a collection.

    Args:
        name: what it is called in tasks and tables.
        path: a BEIR folder, or a folder of questions that name their gold passages.
        seed, train_share: of the draw, where the folder has no two splits.

    Raises:
        DataError: no such layout, or rows that cannot be used.
    """
    judged = find_judgements(path) if path.is_dir() else {}
    if {TRAIN, TEST} <= judged.keys():
        train, test = (read_collection(path, split) for split in SPLITS)
        notes = list(dict.fromkeys(train.notes + test.notes))
        tested = {one.id for one in _list(test)}
        trained = tuple(one for one in _list(train) if one.id not in tested)
        if both := len(_list(train)) - len(trained):
            notes.append(f"training questions that are test questions too, left out: {both}")
        if not trained:
            raise DataError(f"'{path}': every training question is a test question as well")
        questions = {TRAIN: trained, TEST: _list(test)}
        return JudgedCollection(name, test.passages, questions, None, tuple(notes))
    # Of a BEIR folder with one of the two, that one is drawn from; a validation split is not mixed
    # into it, unless there is nothing else.
    only = next((split for split in (*SPLITS, *judged) if split in judged), "")
    whole = read_collection(path, only)
    notes = list(whole.notes)
    if others := sorted(judged.keys() - {only}):
        notes.append(
            f"training and test are drawn from split {only}; not used: {', '.join(others)}"
        )
    by_id = {one.id: one for one in _list(whole)}
    if unjudged := len(whole.questions) - len(by_id):
        notes.append(f"questions without a relevant passage, left out: {unjudged}")
    halves = draw_halves(by_id, seed, train_share)
    questions = {
        TRAIN: tuple(by_id[one] for one in halves.train),
        TEST: tuple(by_id[one] for one in halves.test),
    }
    return JudgedCollection(name, whole.passages, questions, halves, tuple(notes))


def _list(collection: Collection) -> tuple[Judged, ...]:
    """The questions that have a relevant passage: of the others, no list is better than another."""
    return tuple(
        Judged(identity, text, dict(collection.qrels[identity]))
        for identity, text in collection.questions.items()
        if any(grade > 0 for grade in collection.qrels[identity].values())
    )
