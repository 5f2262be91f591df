"""Retrievers over a fixed list of passages; for environments and packages.

What it exports is public: the retrievers `bm25`, `random` and `empty`, `tokenize` for their words,
`IndexCache` for those who share indexes, and `tracked` and `listening` for work that takes long.
"""

from searchrl.retrieval.ablations import EmptyRetriever, RandomRetriever
from searchrl.retrieval.bm25 import BM25Retriever
from searchrl.retrieval.indexes import IndexCache
from searchrl.retrieval.progress import OnProgress, listening, tracked
from searchrl.retrieval.words import tokenize

__all__ = [
    "BM25Retriever",
    "EmptyRetriever",
    "IndexCache",
    "OnProgress",
    "RandomRetriever",
    "listening",
    "tokenize",
    "tracked",
]
