"""Evaluation of retrievers: questions with judged passages, figures, comparisons.

`collection` reads what is judged, `judging` lets retrievers search and compares them, `measures`
computes figures with ir-measures. Imports nothing.
"""
