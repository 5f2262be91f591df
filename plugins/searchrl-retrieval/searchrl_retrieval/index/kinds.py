"""What a retriever must do to be kept in an index folder, and which kinds there are.

Owns the contract `IndexKind` and the names of our own kinds. How folders are written, checked and
found is in `build`, `folder` and `places`. A kind is written once per retriever, by `bm25s`,
`dense` and their neighbours.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from searchrl import UnknownNameError, suggest
from searchrl.contracts import Retriever
from searchrl_retrieval.index.passages import PassageStore
from searchrl_retrieval.index.work import Work

KINDS: Mapping[str, str] = {
    "bm25s": "searchrl_retrieval.bm25s.kind:Bm25s",
    "dense": "searchrl_retrieval.dense.kinds:Dense",
    "static": "searchrl_retrieval.dense.kinds:Static",
}
"""The retrievers that have an index: their registered name, and where their `IndexKind` is."""

PLACES = ("model",)
"""Settings that say where something is. They stand in the command that builds an index again, but
an index is not refused because of them: a model that was moved is still the same model."""


class IndexKind(Protocol):
    """A retriever with its settings, before it has an index.

    A frozen dataclass whose fields are the settings, so that `KIND(**settings)` makes one. It
    checks them itself and raises `ConfigError`.

    Attributes:
        name: the registered name of the retriever.
        version: the layout of its files. Folders of another version are refused as outdated.
        keep_from: number of passages from which an index is kept on disk though nobody asked for
            it. Smaller corpora are indexed anew by every process, in a temporary folder.
    """

    @property
    def name(self) -> str:
        """See the class."""

    @property
    def version(self) -> int:
        """See the class."""

    @property
    def keep_from(self) -> int:
        """See the class."""

    @property
    def built_with(self) -> Mapping[str, Any]:
        """The settings that decide what is in the files, as JSON values.

        A folder that was built with others is refused. Settings that only a search needs are left
        out, so that they may change without a new index.
        """

    def build(self, passages: PassageStore, work: Work) -> None:
        """Write the files of the index into `work.folder`; no pickle among them.

        It is called again after it was killed: what `work` still has is not computed again.
        """

    def open(self, folder: Path, passages: PassageStore) -> Retriever:
        """Make a retriever of the files that `build` wrote. It maps them and reads little.

        Called once per process; what it returns is used by several threads at once.
        """


def find_kind(name: str) -> type[Any]:
    """The class of a kind by the name of its retriever.

    Raises:
        UnknownNameError: no retriever of that name has an index; names those that do.
    """
    if name not in KINDS:
        raise UnknownNameError(f"retriever {name!r} keeps no index.{suggest(name, KINDS)}")
    module, _, attribute = KINDS[name].partition(":")
    kind: type[Any] = getattr(importlib.import_module(module), attribute)
    return kind
