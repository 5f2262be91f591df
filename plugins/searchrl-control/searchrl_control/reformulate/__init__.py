"""Reformulators: what Narrow and Broad search instead.

`contract` is what one must do, `classical` needs no model (RM3, neighbours), `writer` asks a model:
a server, or weights that are here. Imports nothing.
"""
