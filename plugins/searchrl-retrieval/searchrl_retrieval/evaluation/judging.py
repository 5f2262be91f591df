"""Retrievers on a collection: they search, figures are computed, and they are compared in pairs.

Owns the order of an evaluation and what a retriever may return. Figures are those of `measures`,
intervals and tests those of `searchrl.estimate` and `searchrl.compare`. Called by `searchrl
retrieve-eval` and the benchmarks.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
class Judged:
    """What one retriever did.

    `rankings` are the ids that it found for each question, best first; `figures` the values by
    question; `metrics` their means with 95 % intervals.
    """

    rankings: Mapping[str, Sequence[str]]
    figures: Figures
    metrics: Mapping[str, Metric]
    make_s: float
    """Seconds until it could search: the index was built or opened."""
    query_ms: float
    """Mean milliseconds of a query, in batches of `BATCH`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two retrievers on the same questions: the first minus the second, figure by figure."""

    first: str
    second: str
    figures: Mapping[str, Paired]


def judge(
    collection: Collection,
    factories: Mapping[str, RetrieverFactory],
    cutoffs: Sequence[int] = CUTOFFS,
) -> dict[str, Judged]:
    """Let every retriever answer every question, one retriever after another.

    A passage that has the id of a question and its text is that question itself, as in ArguAna. It
    is left out of that question's ranking.

    Raises:
        RetrieverFailure: a retriever could not search; nothing is counted as not found instead.
        PluginError: it returned something else than its contract says.
    """
    return {
        label: _judge_one(collection, label, factory, cutoffs)
        for label, factory in factories.items()
    }


def compare_all(judged: Mapping[str, Judged]) -> list[Difference]:
    """Every pair of retrievers, in the order in which they were named."""
    return [
        Difference(first, second, compare(judged[first].figures, judged[second].figures))
        for first, second in itertools.combinations(judged, 2)
    ]


def _judge_one(
    collection: Collection,
    label: str,
    factory: RetrieverFactory,
    cutoffs: Sequence[int],
) -> Judged:
    began = time.perf_counter()
    retriever = _call(label, "could not be made", partial(factory, collection.passages))
    made = time.perf_counter()
    itself = _find_questions_in_corpus(collection)
    depth = max(cutoffs) + bool(itself)
    rankings: dict[str, list[str]] = {}
    for question, found in _search(label, retriever, collection.questions, depth):
        ids = [passage.id for passage in found]
        rankings[question] = [one for one in ids if not (one == question and one in itself)]
    done = time.perf_counter()
    figures = measure(collection.qrels, rankings, cutoffs, has_hops=collection.has_hops)
    return Judged(
        rankings={question: ids[: max(cutoffs)] for question, ids in rankings.items()},
        figures=figures,
        metrics=estimate(figures),
        make_s=made - began,
        query_ms=1000 * (done - made) / len(rankings),
    )


def _find_questions_in_corpus(collection: Collection) -> set[str]:
    asked = collection.questions
    found = find_passages(collection.passages, asked)
    return {name for name, passage in found.items() if passage.text == asked[name]}


def _search(
    label: str, retriever: Retriever, questions: Mapping[str, str], depth: int
) -> Iterator[tuple[str, Sequence[Passage]]]:
    """Every question's id with what was found for it."""
    asked = list(questions.items())
    batches = [asked[start : start + BATCH] for start in range(0, len(asked), BATCH)]
    for batch in tracked(batches, f"{label} searches, batches of {BATCH}", len(batches)):
        texts = [text for _, text in batch]
        found = _call(label, "failed", partial(retriever.search, texts, depth))
        _ensure_results(label, found, len(batch))
        for (question, _), passages in zip(batch, found, strict=True):
            yield question, passages[:depth]


def _call(label: str, what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except SearchRLError:
        raise
    except Exception as error:
        raise RetrieverFailure(
            f"the retriever {label} {what}: it raised {type(error).__name__}: {error}"
        ) from error


def _ensure_results(label: str, found: object, count: int) -> None:
    if isinstance(found, str) or not isinstance(found, Sequence) or len(found) != count:
        raise PluginError(
            f"the retriever {label} returned {type(found).__name__} for {count} queries; expected "
            f"a list of {count} lists of Passage"
        )
    for passages in found:
        if problem := find_passages_problem(passages):
            raise PluginError(f"the retriever {label} returned {problem}")
