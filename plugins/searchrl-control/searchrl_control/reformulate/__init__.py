"""Reformulators: what Narrow and Broad search instead.

`contract` is what one must do, `classical` needs no model (RM3, neighbours), `writer` asks a model,
`weights` is one whose weights are here,
`kept` keeps on disk what was answered. Imports nothing.
"""
