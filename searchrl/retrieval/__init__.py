"""Retrievers over a fixed list of passages, and corpora on disk; for environments and packages.

What it exports is public: the retrievers `bm25`, `random` and `empty`, `tokenize` for their words,
`IndexCache` for those who share indexes, `tracked` and `listening` for work that takes long, and a
corpus of any size as a `PassageStore`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchrl.retrieval.ablations import EmptyRetriever as EmptyRetriever
    from searchrl.retrieval.ablations import RandomRetriever as RandomRetriever
    from searchrl.retrieval.bm25 import BM25Retriever as BM25Retriever
    from searchrl.retrieval.indexes import IndexCache as IndexCache
    from searchrl.retrieval.passages import PassageStore as PassageStore
    from searchrl.retrieval.passages import fingerprint_passages as fingerprint_passages
    from searchrl.retrieval.passages import has_passages as has_passages
    from searchrl.retrieval.passages import open_passages as open_passages
    from searchrl.retrieval.passages import write_passages as write_passages
    from searchrl.retrieval.progress import OnProgress as OnProgress
    from searchrl.retrieval.progress import listening as listening
    from searchrl.retrieval.progress import tracked as tracked
    from searchrl.retrieval.words import tokenize as tokenize

_MODULES = {
    "ablations": ("EmptyRetriever", "RandomRetriever"),
    "bm25": ("BM25Retriever",),
    "indexes": ("IndexCache",),
    "passages": (
        *("PassageStore", "fingerprint_passages"),
        *("has_passages", "open_passages", "write_passages"),
    ),
    "progress": ("OnProgress", "listening", "tracked"),
    "words": ("tokenize",),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'searchrl.retrieval' has no attribute {name!r}")
    return getattr(importlib.import_module(f"searchrl.retrieval.{_LAZY[name]}"), name)
