"""The criteria of environments: `tasks` (what is asked), `episodes` (what follows) and `choices`.

`play` says how they are made and played. An environment of choices is held to all of them through
the words in which a model plays it, and to those of `choices` as it is.
"""
