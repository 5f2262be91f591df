"""Retrievers over a fixed list of passages: `bm25`, and `random` and `empty` as ablations.

Imports nothing: retrievers are made by their registered names.
"""
