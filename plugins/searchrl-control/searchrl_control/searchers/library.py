"""One collection, ready to be searched in every way: what all episodes over it share.

Owns the order in which its parts are made and how long that took. Made once per process and
collection (`open_library`), because embeddings and counts are the cold cost of an episode.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from searchrl_retrieval.bm25s.kind import Bm25s

from searchrl.contracts import Passage
from searchrl_control.searchers.feedback import Neighbours
from searchrl_control.searchers.links import Links
from searchrl_control.searchers.terms import TermIndex
from searchrl_control.searchers.vectors import NamedEncoder, VectorIndex


class Library:
    """The passages of a collection with their terms, vectors and links.

    Args:
        passages: in corpus order.
        encoder: of their vectors.
        settings: of the words, those of the retriever `bm25s`.
        cache: the folder that keeps vectors; None: nowhere.

    Raises:
        DataError: no passage has a word.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        encoder: NamedEncoder,
        settings: Bm25s | None = None,
        cache: Path | None = None,
    ) -> None:
        began = time.perf_counter()
        self.passages = tuple(passages)
        self.terms = TermIndex(self.passages, settings)
        self.vectors = VectorIndex(self.passages, encoder, cache)
        self.links = Links(self.terms)
        self.place_of = {passage.id: place for place, passage in enumerate(self.passages)}
        self.cold_s = time.perf_counter() - began
        """Seconds that this took: the cold time of a collection."""

    @cached_property
    def neighbours(self) -> Neighbours:
        """The terms near a term; made when somebody first asks."""
        return Neighbours(self.terms, self.vectors.encoder)
