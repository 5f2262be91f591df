"""The honest comparison: an agent against everything that decides nothing.

`sequences` plays every fixed sequence, `playing` a network, `oracle` says how much the best list of
each question would give, and how much of that is luck; `runs` reads what was trained, `study` is
the comparison in its order, `table` prints. Imports nothing.
"""
