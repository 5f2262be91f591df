"""Gymnasium text environments: the base (`text`), `regulations` and `corpus`. Imports nothing."""
