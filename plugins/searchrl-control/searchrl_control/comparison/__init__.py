"""The honest comparison: an agent against everything that decides nothing.

`sequences` plays every fixed sequence and says what an oracle would win, `study` is the comparison
in its order. Imports nothing.
"""
