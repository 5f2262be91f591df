"""The commands `searchrl control …`: `control` is the group with `train` and `questions`, `compare`
has the others. What is measured is in `comparison`, what is made in `collections`. Imports nothing.
"""
