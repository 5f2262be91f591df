"""Searching one collection, as arrays of scores, and what Narrow and Broad search instead.

`library` is a collection, `question` the rankings of one question. Of the reformulators, `contract`
is what one must do, `classical` needs no model (RM3, neighbours), `writer` asks a model: a server,
or weights that are here. Imports nothing.
"""
