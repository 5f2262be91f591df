"""Retrievers over a fixed list of passages; for environments and packages.

What it exports is public: the retrievers `bm25`, `random` and `empty`, `tokenize` for their words,
`IndexCache` for those who share indexes, and `tracked` and `listening` for work that takes long.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
