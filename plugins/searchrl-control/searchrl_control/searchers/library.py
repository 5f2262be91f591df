"""One collection, ready to be searched in every way: what all episodes over it share.

Owns the links of passages: from a passage to those whose title it holds. `N` is the number of
passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from searchrl.contracts import Passage
from searchrl_control.searchers.ranking import Scores
from searchrl_control.searchers.terms import Query, TermIndex
from searchrl_control.searchers.vectors import NamedEncoder, VectorIndex

COVERED = 0.3
"""The weight of a query's term once a passage has it. At 0 every collection loses: measured."""

_KEPT = 4_000
"""Passages whose links are kept in memory, if they are no more than `_KEPT_BYTES`."""
_KEPT_BYTES = 200_000_000


class Library:
    """The passages of a collection with their terms, vectors and links.

    Args:
        passages: in corpus order.
        encoder: of their vectors.
        cache: the folder that keeps vectors; None: nowhere.

    Raises:
        DataError: no passage has a word.
    """

    def __init__(
        self, passages: Sequence[Passage], encoder: NamedEncoder, cache: Path | None = None
    ) -> None:
        self.passages = tuple(passages)
        self.place_of = {passage.id: place for place, passage in enumerate(self.passages)}
        self.terms = terms = TermIndex(self.passages)
        self.vectors = VectorIndex(self.passages, encoder, cache)
        weighted = (terms.titles_NV > 0).astype(np.float32).multiply(terms.idf_V[None, :]).tocsr()
        sums = np.asarray(weighted.sum(axis=1)).ravel()
        scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)
        self._titles_by_term = sp.diags(scale).dot(weighted).tocsc().astype(np.float32)
        kept = max(16, min(_KEPT, _KEPT_BYTES // (4 * len(self.passages))))
        self.links = lru_cache(maxsize=kept)(self._links)

    def _links(self, place: int) -> Scores:
        """The share [N] of every title's IDF that stands in a passage; 0 for the passage itself."""
        terms = self.terms.terms_in(place)
        shares = np.asarray(self._titles_by_term[:, terms].sum(axis=1), dtype=np.float32).ravel()
        shares[place] = 0
        shares.setflags(write=False)  # it is kept, and shared
        return shares

    def residual(self, query: Query, place: int) -> dict[int, float]:
        """What is left of a query once a passage was read: its terms there have a lower weight."""
        have = set(self.terms.terms_in(place).tolist())
        return {
            number: value * (COVERED if number in have else 1.0) for number, value in query.items()
        }
