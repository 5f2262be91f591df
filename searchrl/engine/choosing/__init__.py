"""Policies without tokens: networks that choose actions by number, drawn and trained.

`masks` turns logits into log-probs, in one place. `networks` has our own network. `layout` puts
recorded choices into a forward pass, `policy` is what the learner holds, `chooser` draws, and
`rollout` plays episodes.
"""
