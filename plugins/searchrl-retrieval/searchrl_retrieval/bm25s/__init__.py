"""`bm25s`: BM25 by the library of this name, whose scores are computed once and mapped from disk.

`kind` is the retriever with its settings, `words` how text becomes index terms. Imports nothing.
"""
