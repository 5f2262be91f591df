"""The retriever `bm25s` with its settings: their defaults, their ranges, its build and its opening.

Owns what the names of the settings mean. Called by name: `make_bm25s` by the core, `Bm25s` by
`searchrl index`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from searchrl import ConfigError, suggest
from searchrl.contracts import Passage, Retriever
from searchrl_retrieval.bm25s.words import PLAIN, STOP_WORDS, Analyzer
from searchrl_retrieval.index.passages import PassageStore
from searchrl_retrieval.index.places import open_or_build
from searchrl_retrieval.index.work import Work


@dataclass(frozen=True)
class Bm25s:
    """The `IndexKind` of `bm25s`.

    Args:
        title_weight: how often the words of the title count.
        k1: how soon repeats of a word stop counting.
        b: how much long passages are discounted, 0 to 1.
        language: whose stop words are left out and whose endings are cut off; `none` leaves words
            as they are. Scripts without spaces give pairs of characters in any case.

    Raises:
        ConfigError: there is no such language. Numbers are checked where settings are read.
    """

    title_weight: int = 6
    k1: float = 1.2
    b: float = 0.75
    language: str = "english"

    name: ClassVar[str] = "bm25s"
    version: ClassVar[int] = 1
    keep_from: ClassVar[int] = 10_000

    def __post_init__(self) -> None:
        if self.language not in (known := (*STOP_WORDS, PLAIN)):
            raise ConfigError(
                f"retriever bm25s: there is no language {self.language!r}."
                f"{suggest(self.language, known)}"
            )

    @property
    def built_with(self) -> Mapping[str, Any]:
        """All settings: each of them changes a score in the files."""
        return {
            "title_weight": self.title_weight,
            "k1": self.k1,
            "b": self.b,
            "language": self.language,
        }

    def build(self, passages: PassageStore, work: Work) -> None:
        """Count the words of every passage, then score them; see `counting` and `scoring`.

        Every score changes when passages are added, so all words are counted again then.
        """
        from searchrl_retrieval.bm25s.counting import count_parts
        from searchrl_retrieval.bm25s.scoring import write_scores

        parts = count_parts(passages, Analyzer(self.language), self.title_weight, work)
        write_scores(parts, len(passages), self.k1, self.b, work)

    def open(self, folder: Path, passages: PassageStore) -> Retriever:
        """Map the index."""
        from searchrl_retrieval.bm25s.search import Bm25sRetriever

        return Bm25sRetriever(folder, passages, Analyzer(self.language))


def make_bm25s(
    passages: Sequence[Passage],
    *,
    title_weight: Annotated[int, Field(ge=0)] = Bm25s.title_weight,
    k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Bm25s.k1,
    b: Annotated[float, Field(ge=0, le=1)] = Bm25s.b,
    language: str = Bm25s.language,
    index: str | None = None,
) -> Retriever:
    """The retriever `bm25s` over passages: from the folder `index`, or one that is kept for them.

    The defaults are the same for every collection; docs/how-to/retrieval.md has what they give.
    """
    return open_or_build(Bm25s(title_weight, k1, b, language), passages, index)
