"""Questions for training: how hard they are, in which order they come, and made-up ones.

`difficulty` measures by the single pass, `curriculum` orders, `written` makes questions of passages
and `leakage` refuses those that give themselves away. Imports nothing.
"""
