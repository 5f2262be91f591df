"""Ways to search one collection, as arrays of scores: the actions of the agent are made of them.

`terms` is BM25 with weighted queries, `vectors` the embeddings, `ranking` orders and fuses scores,
`feedback` changes queries (RM3, Broad), `links` follows a passage to the next. Imports nothing.
"""
