"""The kit for plugin authors: criteria, contract suites, scripted policies, cases, fixtures.

Imports floors 0 and 1 only, and torch only where an algorithm's loss is checked.
"""
