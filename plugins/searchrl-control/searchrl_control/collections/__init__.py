"""Test collections: `judged` finds one by name or downloads it, reads it and draws its split,
`written` makes questions of its passages, `demo` is made up. Imports nothing.
"""
