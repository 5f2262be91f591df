"""Test collections: where they lie, who is training and who is test, and how hard a question is.

`places` finds a collection by name, `hub` downloads one, `halves` draws a split by a seed and
writes it down, `judged` is a collection as the environment needs it, `demo` a small one that is
made up. Imports nothing.
"""
