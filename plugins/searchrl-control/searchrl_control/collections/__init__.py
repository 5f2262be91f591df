"""Test collections: `places` finds one by name or downloads it, `judged` reads it and draws its
split, `demo` is a small one that is made up. Imports nothing.
"""
