"""The environment `retrieval-control`, a plain Gymnasium one.

`env` is the episode, `settings` what it can be told, `actions` the sets of actions, `lists` and
`heads` what they do, `features` what is observed of a list, `positions` the kept positions of a
collection, `measures` and `rewards` what a list is worth. Imports nothing.
"""
