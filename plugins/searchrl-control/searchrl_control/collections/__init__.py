"""Test collections: `places` finds one by name or downloads it, `judged` reads it and draws its
split, `written` makes questions of its passages, `demo` is made up. Imports nothing.
"""
