"""The environment `retrieval-control`, a plain Gymnasium one.

`env` is the episode, `settings` what it takes and the sets of actions, `worlds` an opened
collection and its memory, `games` what actions do, `features` what is observed, `measures` what a
list is worth, `rewards` what a judge says of it. Imports nothing.
"""
