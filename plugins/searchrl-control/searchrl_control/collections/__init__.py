"""Test collections: where they lie, and who is training and who is test.

`places` finds a collection by name or downloads it, `judged` reads it and draws its split, `demo`
is a small one that is made up. Imports nothing.
"""
