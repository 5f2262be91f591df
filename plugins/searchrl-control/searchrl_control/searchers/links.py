"""From a passage to the next one: titles that it names, and what it does not say of the query.

Owns the second hop of questions that need two passages. A passage links to those whose title it
holds; what is left of a query once a passage was read is the query with the words of that passage
at a lower weight. `N` is the number of passages.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from searchrl_control.searchers.ranking import Scores
from searchrl_control.searchers.terms import Query, TermIndex

COVERED = 0.3
"""The weight of a query's term once a passage has it. At 0 every collection loses: measured."""

_KEPT = 4_000
"""Passages whose links are kept in memory, if they are no more than `_KEPT_BYTES`."""
_KEPT_BYTES = 200_000_000


class Links:
    """What the passages of a collection link to."""

    def __init__(self, index: TermIndex) -> None:
        self._index = index
        weighted = (index.titles_NV > 0).astype(np.float32).multiply(index.idf_V[None, :]).tocsr()
        sums = np.asarray(weighted.sum(axis=1)).ravel()
        scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)
        self._titles_by_term = sp.diags(scale).dot(weighted).tocsc().astype(np.float32)
        kept = max(16, min(_KEPT, _KEPT_BYTES // (4 * index.num_passages)))
        self.covered = lru_cache(maxsize=kept)(self._covered)

    def _covered(self, place: int) -> Scores:
        """The share [N] of every title's IDF that stands in a passage; 0 for the passage itself."""
        terms = self._index.terms_in(place)
        shares = np.asarray(self._titles_by_term[:, terms].sum(axis=1), dtype=np.float32).ravel()
        shares[place] = 0
        shares.setflags(write=False)  # it is kept, and shared
        return shares

    def residual(self, query: Query, place: int, weight: float = COVERED) -> dict[int, float]:
        """The query with the terms that a passage has at a lower weight."""
        have = set(self._index.terms_in(place).tolist())
        return {
            number: value * (weight if number in have else 1.0) for number, value in query.items()
        }
