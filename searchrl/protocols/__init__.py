"""Tag protocols: one object per protocol owns its prompt text, stop strings, parser and verdict.

The built-in protocol is `think_search_answer`; plugins add others through `register_protocols`.
Protocols work on strings only and see model-written turns only. They are called by environments
(parse, render), by the rollout driver (instruction, stops, opening) and by rewards through
`Episode.format_score`.
"""

from searchrl.protocols.think_search_answer import FIRST_THOUGHT, ThinkSearchAnswer

__all__ = ["FIRST_THOUGHT", "ThinkSearchAnswer"]
