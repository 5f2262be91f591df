"""The environment `retrieval-control`, a plain Gymnasium one.

`env` is the episode, `settings` what it takes, `worlds` an opened collection and its memory,
`actions` the sets of actions, `games` what they do, `features` what is observed, `measures` what a
list is worth, `rewards` what a judge says of it. Imports nothing.
"""
