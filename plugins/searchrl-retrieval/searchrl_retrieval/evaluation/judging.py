"""Retrievers on a collection: they search, figures are computed, and they are compared in pairs.

Intervals and tests are those of `searchrl.estimate` and `searchrl.compare`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from searchrl import PluginError, RetrieverFailure, SearchRLError, compare, estimate
from searchrl.contracts import (
    Metric,
    Paired,
    Passage,
    Retriever,
    RetrieverFactory,
    find_passages_problem,
)
from searchrl.retrieval import tracked
from searchrl_retrieval.evaluation.collection import Collection, find_passages
from searchrl_retrieval.evaluation.measures import CUTOFFS, Figures, measure

BATCH = 64
"""Queries that are sent together."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The rankings of one retriever (ids by question), its figures by question, and their means."""

    rankings: Mapping[str, Sequence[str]]
    figures: Figures
    metrics: Mapping[str, Metric]
    make_s: float
    """Seconds until it could search: the index was built or opened."""
    query_ms: float
    """Mean milliseconds of a query, in batches of `BATCH`."""


class Difference(NamedTuple):
    """Two retrievers on the same questions: the first minus the second, figure by figure."""

    first: str
    second: str
    figures: Mapping[str, Paired]


def judge(
    collection: Collection,
    factories: Mapping[str, RetrieverFactory],
    cutoffs: Sequence[int] = CUTOFFS,
) -> dict[str, Measured]:
    """Let every retriever answer every question, one retriever after another.

    A passage that has the id of a question and its text is that question itself, as in ArguAna. It
    is left out of that question's ranking.
    """
    texts = {one.id: one.text for one in collection.questions}
    same = find_passages(collection.passages, texts)
    itself = {name for name, passage in same.items() if passage.text == texts[name]}
    judged = {}
    for label, factory in factories.items():
        began = time.perf_counter()
        retriever = factory(collection.passages)
        made = time.perf_counter()
        results = _search(label, retriever, list(texts.values()), max(cutoffs) + bool(itself))
        done = time.perf_counter()
        rankings = {
            question: [p.id for p in passages if not (p.id == question and p.id in itself)]
            for question, passages in zip(texts, results, strict=True)
        }
        figures = measure(collection.qrels, rankings, cutoffs, has_hops=collection.has_hops)
        judged[label] = Measured(
            rankings={question: ids[: max(cutoffs)] for question, ids in rankings.items()},
            figures=figures,
            metrics=estimate(figures),
            make_s=made - began,
            query_ms=1000 * (done - made) / len(rankings),
        )
    return judged


def compare_all(judged: Mapping[str, Measured]) -> list[Difference]:
    """Every pair of retrievers, in the order in which they were named."""
    return [
        Difference(first, second, compare(judged[first].figures, judged[second].figures))
        for first, second in itertools.combinations(judged, 2)
    ]


def _search(
    label: str, retriever: Retriever, queries: Sequence[str], depth: int
) -> list[Sequence[Passage]]:
    """The results for every query, checked."""
    results: list[Sequence[Passage]] = []
    batches = [queries[start : start + BATCH] for start in range(0, len(queries), BATCH)]
    for batch in tracked(batches, f"{label} searches, batches of {BATCH}", len(batches)):
        try:
            answer = retriever.search(batch, depth)
        except SearchRLError:
            raise
        except Exception as error:
            raise RetrieverFailure(
                f"the retriever {label} failed: it raised {type(error).__name__}: {error}"
            ) from error
        if isinstance(answer, str) or not isinstance(answer, Sequence) or len(answer) != len(batch):
            raise PluginError(
                f"the retriever {label} returned {type(answer).__name__} for {len(batch)} queries; "
                f"expected a list of {len(batch)} lists of Passage"
            )
        for passages in answer:
            if problem := find_passages_problem(passages):
                raise PluginError(f"the retriever {label} returned {problem}")
            results.append(passages[:depth])
    return results
