"""The commands of this package, one module each.

`surroundings` and `choice` are what they share. Imports nothing.
"""
