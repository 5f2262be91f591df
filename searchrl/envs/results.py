"""The result of a search turn, and the check of the lists that a retriever returned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from searchrl.contracts import find_passages_problem
from searchrl.core.episode import Passage

Ranks = tuple[Mapping[str, int | None], ...]
"""Per query, the rank of each gold passage; empty if it is not known."""


class Found(NamedTuple):
    """The passages of a search turn, and the observation that shows them."""

    passages: tuple[Passage, ...]
    observation: str
    ranks: Ranks = ()


def find_result_problem(results: object, num_queries: int) -> str:
    """Say what is wrong with the value that `search` returned, or "" if it is right."""
    if not isinstance(results, Sequence):
        return f"returned {type(results).__name__}; expected one list of passages per query"
    if len(results) != num_queries:
        return f"gave {len(results)} results for {num_queries} queries; it must give one per query"
    problems = (find_passages_problem(result) for result in results)
    return next((f"returned for a query {problem}" for problem in problems if problem), "")


def round_robin(results: Iterable[Sequence[Passage]], limit: int) -> Iterator[Passage]:
    """The best of every query, then the second best, …: at most `limit`, no passage twice."""
    shown: set[str] = set()
    for rank in zip_longest(*results):
        for passage in rank:
            if passage is None or passage.id in shown:
                continue
            if len(shown) == limit:
                return
            shown.add(passage.id)
            yield passage
