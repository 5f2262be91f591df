"""The honest comparison: an agent against everything that decides nothing.

`sequences` plays every fixed sequence, `playing` any policy, `oracle` says how much the best list
of each question would give, and how much of that is luck; `paired` compares two policies on pooled
collections; `table` prints. Imports nothing.
"""
