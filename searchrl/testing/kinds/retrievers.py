"""Criteria of retrievers: R1 to R11, over a small corpus in several scripts."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Sequence
from typing import Any

from searchrl.contracts import Retriever, StoredRetriever, find_passages_problem
from searchrl.core.episode import Passage
from searchrl.testing.criteria import MAX_PROBLEMS, NotApplicable, Problem, criterion, find_missing
from searchrl.testing.kit.subject import Subject
from searchrl.testing.kit.texts import HARD_QUERIES, PASSAGES, QUERIES
from searchrl.testing.trials import Trial, Way, judged, unchanged

Case = tuple[str, int]
"""A query and how many passages are asked for."""


@criterion("R1")
def _gives_lists(subject: Subject) -> Iterator[Problem]:
    retriever: Any = _make(subject)
    if problems := [*find_missing(retriever, "search")]:
        yield from problems
        return
    for number in range(3):
        result: Any = retriever.search([*QUERIES[:number]], 3)
        at = subject.returned_at(lambda: retriever.search([*QUERIES[:2]], 3))
        if not isinstance(result, list | tuple):
            yield Problem(f"search() returned {type(result).__name__} for {number} queries", at)
        elif len(result) != number:
            yield Problem(f"search() gave {len(result)} results for {number} queries", at)
        elif problem := next((p for one in result if (p := find_passages_problem(one))), ""):
            yield Problem(f"search() returned for a query {problem}", at)
            return


def _make(subject: Subject) -> Retriever:
    made: Retriever = subject.make(list(PASSAGES))
    return made


def _make_of_given(subject: Subject) -> Retriever:
    """A retriever of the given passages, not of a corpus that lies elsewhere."""
    made = _make(subject)
    if isinstance(made, StoredRetriever) and made.stored([]) is None:
        raise NotApplicable("its passages are elsewhere: stored() gives None")
    return made


def _search(retriever: Retriever, case: Case) -> Sequence[Passage]:
    (passages,) = retriever.search([case[0]], case[1])
    return passages


def _ids(passages: Sequence[Passage]) -> list[str]:
    return [passage.id for passage in passages]


def _find(retriever: Retriever, case: Case) -> list[str]:
    return _ids(_search(retriever, case))


def _find_together(retriever: Retriever, queries: Sequence[str]) -> list[tuple[Any, Any]]:
    batch = map(_ids, retriever.search([*queries], 3))
    return [*zip(batch, (_find(retriever, (query, 3)) for query in queries), strict=False)]


def _cases(queries: Sequence[str], *ks: int) -> dict[str, Case]:
    hard = dict(HARD_QUERIES)
    return {
        f"query {query[:40]!r}{f' ({hard[query]})' if query in hard else ''} with k={k}": (query, k)
        for k in ks
        for query in queries
    }


ALL_QUERIES = (*QUERIES, *dict(HARD_QUERIES))
FOUND = Trial(lambda subject: _cases(QUERIES, 3), _find, _make)
SIZED = Trial(
    lambda subject: _cases((*QUERIES, "the"), 1, 2, 3, 0, len(PASSAGES), 10_000), _find, _make
)
RANKED = Trial(
    lambda subject: _cases((*QUERIES, "the park closes at five"), len(PASSAGES)), _search, _make
)
BATCHED = Trial(
    lambda subject: {
        f"a batch of {len(queries)} queries that begins with {queries[0]!r}": queries
        for queries in (QUERIES, QUERIES[::-1], ("library", "zeppelin", "park", "library"))
    },
    _find_together,
    _make,
)
INDEXED = Trial(
    lambda subject: {
        "an empty corpus": (),
        "a corpus of one passage": PASSAGES[:1],
        "a corpus of one empty text": (Passage("x", ""),),
        "a corpus of punctuation": (Passage("x", "…", "?!"), Passage("y", "—")),
        "a corpus of equal texts": tuple(Passage(str(i), "park bench") for i in range(9)),
    },
    lambda subject, passages: subject.make(list(passages)).search(["park", ""], 3),
    lambda subject: _make_of_given(subject) and subject,
)
_is_repeatable = criterion("R7")(unchanged(FOUND, Way.AGAIN, Way.ANEW, Way.ELSEWHEN))
_bears_threads = criterion("R11")(unchanged(FOUND, Way.TOGETHER))


@criterion("R2")
@judged(BATCHED)
def _batch_is_singles(queries: Sequence[str], pairs: Sequence[tuple[Any, Any]]) -> str:
    for query, (batch, alone) in zip(queries, pairs, strict=False):
        if batch != alone:
            return f"query {query!r} finds {batch} in a batch of {len(queries)} and {alone} alone"
    return ""


@criterion("R3")
@judged(SIZED)
def _at_most_k(case: Case, ids: Sequence[str]) -> str:
    if len(ids) > case[1]:
        return f"it finds {len(ids)} passages"
    return f"it finds a passage twice: {ids}" if len(set(ids)) < len(ids) else ""


@criterion("R4")
@judged(Trial(lambda subject: _cases(ALL_QUERIES, 3), _search, _make_of_given))
def _own_passages(case: Case, passages: Sequence[Passage]) -> str:
    known = {passage.id: passage for passage in PASSAGES}
    for passage in () if find_passages_problem(passages) else passages:
        original = known.get(passage.id)
        if original is None or (original.text, original.title) != (passage.text, passage.title):
            what = "is no id of its corpus" if original is None else "has another text or title"
            return f"it finds {passage.id!r}, which {what}"
    return ""


@criterion("R5")
@judged(RANKED)
def _best_first(case: Case, passages: Sequence[Passage]) -> str:
    scores = [passage.score for passage in passages]
    if not all(isinstance(s, numbers.Real) and not math.isnan(s) for s in scores):
        return f"it gives the scores {scores}; expected numbers"
    if scores != sorted(scores, reverse=True):
        return f"it gives the scores {[round(s, 3) for s in scores]}, which rise"
    return ""


@criterion("R6")
@judged(Trial(lambda subject: _cases(ALL_QUERIES, 3), _search, _make), raises=True, most=3)
def _never_raises(case: Case, passages: Any) -> str:
    is_wrong = bool(find_passages_problem(passages))
    return f"it returned {passages!r:.60}; expected a list of passages" if is_wrong else ""


@criterion("R8")
@judged(INDEXED, raises=True, most=MAX_PROBLEMS)
def _any_corpus(passages: Sequence[Passage], results: Any) -> str:
    known = {passage.id for passage in passages}
    is_good = len(results) == 2 and all(set(_ids(one)) <= known for one in results)
    return "" if is_good else f"it returned {results!r:.80} for two queries"
