"""Searching one collection, as arrays of scores, and what Narrow and Broad search instead.

`library` is a collection, `question` the rankings of one question, `reformulators` what one of
these must do and RM3 with neighbours, `writer` the one that asks a model. Imports nothing.
"""
