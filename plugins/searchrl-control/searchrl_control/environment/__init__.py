"""The environment `retrieval-control`, a plain Gymnasium one.

`env` is the episode, `factory` its settings, `worlds` an opened collection, `actions` the sets of
actions, `lists` and `heads` what they do, `features` and `candidates` what is observed, `positions`
the kept positions of a collection, `measures` and `rewards` what a list is worth. Imports nothing.
"""
