"""Ways to search one collection, as arrays of scores: the actions of the agent are made of them.

`terms` searches by words, `vectors` by embeddings, `ranking` orders and fuses scores, `library` is
a collection with all of these, `question` the rankings of one question. Imports nothing.
"""
