"""The retriever `bm25s` with its settings: their defaults, their ranges, its build and its opening.

Owns what is counted: the terms of a text, and those of a title several times. Scores are computed
and saved by the library bm25s, in Lucene's variant (Kamphuis et al. 2020, "Which BM25 do you
mean?"):

    score(t, d) = ln(1 + (N - n_t + 0.5) / (n_t + 0.5)) * tf / (tf + k1 * (1 - b + b * |d| / avg))
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from searchrl import ConfigError, suggest
from searchrl.contracts import Retriever
from searchrl.retrieval import tracked
from searchrl_retrieval.bm25s.words import LANGUAGES, PLAIN, Analyzer
from searchrl_retrieval.index.folder import Index
from searchrl_retrieval.index.passages import PassageStore
from searchrl_retrieval.index.places import IndexFactory


@dataclass(frozen=True)
class Bm25s:
    """The `IndexKind` of `bm25s`. The defaults are the same for every collection.

    Args:
        title_weight: how often the words of the title count.
        k1: how soon repeats of a word stop counting.
        b: how much long passages are discounted, 0 to 1.
        language: whose stop words are left out and whose endings are cut off; `none` leaves words
            as they are. Scripts without spaces give pairs of characters in any case.

    Raises:
        ConfigError: there is no such language. Numbers are checked where settings are read.
    """

    title_weight: Annotated[int, Field(ge=0)] = 6
    k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.2
    b: Annotated[float, Field(ge=0, le=1)] = 0.75
    language: str = "english"

    name: ClassVar[str] = "bm25s"
    keep_from: ClassVar[int] = 10_000

    def __post_init__(self) -> None:
        if self.language not in (known := (*LANGUAGES, PLAIN)):
            raise ConfigError(
                f"retriever bm25s: there is no language {self.language!r}."
                f"{suggest(self.language, known)}"
            )

    @property
    def built_with(self) -> Mapping[str, Any]:
        """All settings: each of them changes a score in the files."""
        return asdict(self)

    def build(self, passages: PassageStore, folder: Path, previous: Index | None) -> None:
        """Count and score the terms of every passage.

        Every score changes when passages are added, so all are counted again then.
        """
        from bm25s import BM25

        analyzer = Analyzer(self.language)
        numbers: dict[str, int] = {}
        counted = []
        for passage in tracked(passages, "counting words", len(passages)):
            terms = analyzer.terms(passage.title) * self.title_weight + analyzer.terms(passage.text)
            counted.append(array("i", [numbers.setdefault(one, len(numbers)) for one in terms]))
        if numbers:  # else there is nothing to save
            bm25 = BM25(k1=self.k1, b=self.b, method="lucene", csc_backend="scipy")
            bm25.index((counted, numbers), create_empty_token=False, show_progress=False)
            bm25.save(folder, show_progress=False)

    def open(self, folder: Path, passages: PassageStore) -> Retriever:
        """Map the index."""
        from searchrl_retrieval.bm25s.search import Bm25sRetriever

        return Bm25sRetriever(folder, passages, Analyzer(self.language))


make_bm25s = IndexFactory(Bm25s)
"""The retriever `bm25s` over passages."""
