"""Questions for training: `difficulty` says how hard they are, `written` makes questions of
passages and `leakage` refuses those that give themselves away. Imports nothing.
"""
