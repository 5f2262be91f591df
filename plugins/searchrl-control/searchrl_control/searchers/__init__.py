"""Ways to search one collection, as arrays of scores: `library` is a collection, `question` the
rankings of one question, `ranking` orders and fuses scores. Imports nothing.
"""
