"""Tag protocols: one object per protocol owns its prompt text, stop strings, parser and verdict.

The default is `think_search_answer`; `tool_call` is the format of function calls that models know;
`act` is for environments with actions. Plugins add others through `register_protocols`. Protocols
work on strings only and read model-written turns only. They are called by environments (parse,
render), by the rollout driver (instruction, stops, opening) and by rewards through
`Episode.format_score`.
"""

from searchrl.protocols.inline import FIRST_THOUGHT, InlineProtocol
from searchrl.protocols.think_search_answer import ThinkSearchAnswer
from searchrl.protocols.tool_call import ToolCallProtocol

__all__ = ["FIRST_THOUGHT", "InlineProtocol", "ThinkSearchAnswer", "ToolCallProtocol"]
