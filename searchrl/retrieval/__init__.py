"""Retrievers over a fixed list of passages: `bm25`, and `random` and `empty` as ablations.

Imports nothing: each retriever is reached through its registered name.
"""
