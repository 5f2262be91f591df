"""All positions of the set `heads` for the training questions of collections, as tables.

Owns how they are built, kept in a file, and joined. In `heads`, what can be seen and done depends
on the passages that were kept, so a question has some twenty positions and not thousands, and the
value of any policy is exact: no episode has to be played. `cross_validate.py` learns on them.

Shapes: Q questions, P positions, K sources, C features of a candidate, L features of three lists, T
of a question's terms, D numbers seen, O options (the sources, then Terminate).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from searchrl_control.collections.judged import Judged
from searchrl_control.comparison.sequences import list_sequences, name_of
from searchrl_control.environment.actions import HEADS, Action, find_set
from searchrl_control.environment.candidates import CANDIDATE_FEATURES
from searchrl_control.environment.env import MAX_STEPS
from searchrl_control.environment.features import LIST_FEATURES, QUERY_FEATURES
from searchrl_control.environment.games import Path as Actions
from searchrl_control.environment.heads import SOURCES
from searchrl_control.environment.measures import ndcg
from searchrl_control.environment.worlds import World
from searchrl_control.policies.space import Space
from torch import Tensor

from searchrl import DataError

ACTIONS = find_set(HEADS)
NUMBERS = tuple(ACTIONS.index(source) for source in SOURCES)
"""The number of each source as an action."""
OPTIONS = (*NUMBERS, ACTIONS.index(Action.TERMINATE))
"""What is legal after the first Search."""
DEPTHS = MAX_STEPS - 1
"""Actions after the first Search; the last one ends the episode."""

SPACE = Space(
    (
        ("candidates", len(SOURCES) * len(CANDIDATE_FEATURES)),
        ("searches", 3 * len(LIST_FEATURES)),
        ("step", MAX_STEPS + 1),
        ("terms", len(QUERY_FEATURES)),
    ),
    tuple(map(str, ACTIONS)),
    MAX_STEPS,
)
"""What a network reads here. The environment also shows embeddings, which are left out by default,
and which actions were done (`taken`): two ways to the same kept passages are one position here."""

_ABOUT = "about"


class Table(NamedTuple):
    """The positions of one collection.

    `child_PK` is the position after a source, -1 after the last action or an illegal one;
    `worth_PK` is nDCG@k of the list after a source, 0 if it is illegal. `single_Q` is nDCG@k of the
    single pass.
    """

    ids_Q: NDArray[np.str_]
    root_Q: NDArray[np.int64]
    single_Q: NDArray[np.float32]
    searches_QL: NDArray[np.float32]
    terms_QT: NDArray[np.float32]
    question_P: NDArray[np.int64]
    depth_P: NDArray[np.int64]
    candidates_PKC: NDArray[np.float32]
    is_legal_PK: NDArray[np.bool_]
    child_PK: NDArray[np.int64]
    worth_PK: NDArray[np.float32]


def build_table(world: World, split: str) -> Table:
    """The positions of all questions of a split: about .06 s of a core per question.

    Args:
        world: opened with the set `heads`, and lists of at least four passages.
        split: whose questions.
    """
    of_question: dict[str, list[Any]] = {name: [] for name in Table._fields[:5]}
    of_position: dict[str, list[Any]] = {name: [] for name in Table._fields[5:]}
    for number, question in enumerate(world.questions(split)):
        asker, first = world.asker(question), len(of_position["depth_P"])
        single = world.positions.ids(world.positions.at(asker, ()))
        statics = world.positions.statics(asker)
        of_question["ids_Q"].append(question.id)
        of_question["root_Q"].append(first)
        of_question["single_Q"].append(ndcg(single, question.qrels, world.positions.k))
        of_question["searches_QL"].append(statics["searches"])
        of_question["terms_QT"].append(statics["terms"])
        for row in _explore(world, question):
            of_position["question_P"].append(number)
            of_position["child_PK"].append([first + c if c >= 0 else -1 for c in row.child_K])
            of_position["depth_P"].append(row.depth)
            of_position["candidates_PKC"].append(row.candidates_KC)
            of_position["is_legal_PK"].append(row.is_legal_K)
            of_position["worth_PK"].append(row.worth_K)
    return _as_table({**of_question, **of_position})


class _Row(NamedTuple):
    """One position; children by their place among the positions of the question."""

    depth: int
    candidates_KC: NDArray[np.float32]
    is_legal_K: list[bool]
    child_K: list[int]
    worth_K: list[float]


def _explore(world: World, question: Judged) -> Iterator[_Row]:
    """The positions of one question, in the order in which they are met; the first one first."""
    positions, asker = world.positions, world.asker(question)
    # By the passages that were kept; with the first path that led there.
    known: dict[tuple[str, ...], int] = {(): 0}
    paths: list[Actions] = [()]
    for path in paths:  # it grows below
        seen = positions.at(asker, path)
        row = _Row(
            len(path),
            seen.blocks["candidates"].reshape(len(SOURCES), len(CANDIDATE_FEATURES)),
            [seen.legal[action] for action in NUMBERS],
            [-1] * len(NUMBERS),
            [0.0] * len(NUMBERS),
        )
        for source, action in enumerate(NUMBERS):
            if not row.is_legal_K[source]:
                continue
            after = (*path, action)
            ids = [one for one, _ in positions.list_after(asker, after)]
            row.worth_K[source] = ndcg(ids, question.qrels, positions.k)
            if len(after) < DEPTHS:
                kept = tuple(ids[: len(after)])
                if kept not in known:
                    known[kept] = len(paths)
                    paths.append(after)
                row.child_K[source] = known[kept]
        yield row


def _as_table(columns: Mapping[str, Any]) -> Table:
    made: dict[str, Any] = {}
    for name in Table._fields:
        array = np.asarray(columns[name])
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        made[name] = array
    return Table(**made)


def load_tables(path: Path) -> dict[str, Table]:
    """The tables of a file, by collection; none if there is no such file.

    Raises:
        DataError: they were built when the package showed other signs.
    """
    if not path.is_file():
        return {}
    with np.load(path) as kept:
        if str(kept[_ABOUT]) != _about():
            raise DataError(
                f"{path} has tables of other signs or actions than this version of the package; "
                "delete it, and they are built anew"
            )
        names = sorted({key.rpartition("/")[0] for key in kept.files} - {""})
        return {
            name: Table(**{field: kept[f"{name}/{field}"] for field in Table._fields})
            for name in names
        }


def write_tables(path: Path, tables: Mapping[str, Table]) -> None:
    """Keep tables in a file; it names the signs that they were built with."""
    arrays: dict[str, Any] = {_ABOUT: np.array(_about())}
    arrays |= {
        f"{name}/{field}": array
        for name, table in tables.items()
        for field, array in table._asdict().items()
    }
    np.savez(path, **arrays)


def _about() -> str:
    return json.dumps([SPACE.to_dict(), CANDIDATE_FEATURES, LIST_FEATURES, QUERY_FEATURES])


@dataclass(frozen=True, slots=True)
class Pool:
    """The questions of several collections, with what a network reads at their positions.

    `collection_Q` is the name of each question's collection. `at_depth` are the positions of each
    depth; the rest is as in `Table`.
    """

    collection_Q: NDArray[np.str_]
    ids_Q: NDArray[np.str_]
    root_Q: Tensor
    single_Q: Tensor
    seen_PD: Tensor
    is_legal_PO: Tensor
    child_PK: Tensor
    worth_PK: Tensor
    at_depth: tuple[Tensor, ...]


def join(tables: Mapping[str, Table]) -> Pool:
    """The tables as one, in their order."""
    starts = np.cumsum([0, *(len(table.depth_P) for table in tables.values())])
    moved = list(zip(tables.values(), starts.tolist(), strict=False))
    depth_P = np.concatenate([table.depth_P for table, _ in moved])
    children = [np.where(t.child_PK >= 0, t.child_PK + start, -1) for t, start in moved]
    is_legal_PK = np.concatenate([table.is_legal_PK for table, _ in moved])
    always_P1 = np.ones((len(depth_P), 1), dtype=np.bool_)
    names = [np.full(len(table.ids_Q), name) for name, table in tables.items()]
    return Pool(
        np.concatenate(names),
        np.concatenate([table.ids_Q for table, _ in moved]),
        torch.from_numpy(np.concatenate([table.root_Q + start for table, start in moved])),
        torch.from_numpy(np.concatenate([table.single_Q for table, _ in moved])),
        torch.from_numpy(np.concatenate([_rows(table) for table, _ in moved])),
        torch.from_numpy(np.concatenate([is_legal_PK, always_P1], axis=1)),
        torch.from_numpy(np.concatenate(children)),
        torch.from_numpy(np.concatenate([table.worth_PK for table, _ in moved])),
        tuple(torch.from_numpy(np.flatnonzero(depth_P == depth)) for depth in range(DEPTHS)),
    )


def _rows(table: Table) -> NDArray[np.float32]:
    """The observations [P, D] as rows of `SPACE`."""
    blocks = {
        "candidates": table.candidates_PKC.reshape(len(table.depth_P), -1),
        "searches": table.searches_QL[table.question_P],
        # Search was the first step.
        "step": np.eye(MAX_STEPS + 1, dtype=np.float32)[table.depth_P + 1],
        "terms": table.terms_QT[table.question_P],
    }
    return np.concatenate([blocks[name] for name, _ in SPACE.blocks], axis=1)


def value_sequences(pool: Pool) -> tuple[list[Actions], NDArray[np.float32]]:
    """Every fixed sequence, and what each is worth for each question: [Q, sequences].

    As in the environment, an illegal action becomes Search, which begins again.
    """
    sequences = list_sequences(ACTIONS, MAX_STEPS)
    worths = np.empty((len(pool.ids_Q), len(sequences)), dtype=np.float32)
    root_Q, single_Q = pool.root_Q.numpy(), pool.single_Q.numpy()
    child_PK, worth_PK = pool.child_PK.numpy(), pool.worth_PK.numpy()
    is_legal_PO = pool.is_legal_PO.numpy()
    known: dict[Actions, tuple[NDArray[np.int64], NDArray[np.float32]]] = {(): (root_Q, single_Q)}
    for place, sequence in enumerate(sequences):
        if sequence:
            source = NUMBERS.index(sequence[-1])
            at_Q = known[sequence[:-1]][0]
            is_legal_Q = is_legal_PO[at_Q, source]
            after_Q = np.where(is_legal_Q, child_PK[at_Q, source], root_Q)
            known[sequence] = after_Q, np.where(is_legal_Q, worth_PK[at_Q, source], single_Q)
        worths[:, place] = known[sequence][1]
    return sequences, worths


def value_policy(pool: Pool, share_PO: Tensor, cost: float, extra_P: Tensor | None) -> Tensor:
    """What a policy earns for each question [Q], exactly: the mean over all of its episodes.

    Args:
        pool: the positions.
        share_PO: the probability of every option; 0 where it is illegal.
        cost: of an action after the first Search.
        extra_P: what a visit of a position costs besides.
    """
    later_P = torch.zeros(len(share_PO))
    for depth in range(DEPTHS - 1, -1, -1):
        at = pool.at_depth[depth]
        worth = pool.worth_PK[at]
        if depth < DEPTHS - 1:
            child = pool.child_PK[at].clamp_min(0)
            worth = share_PO[child, -1] * worth + later_P[child]
        earned = (share_PO[at, :-1] * (worth - cost)).sum(dim=1)
        later_P = later_P.index_put((at,), earned if extra_P is None else earned - extra_P[at])
    return share_PO[pool.root_Q, -1] * pool.single_Q + later_P[pool.root_Q]


def in_words(sequence: Sequence[int]) -> str:
    """A fixed sequence by the names of its actions."""
    return name_of(ACTIONS, sequence)
