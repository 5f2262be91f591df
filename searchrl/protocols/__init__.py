"""Tag protocols: one object per protocol owns its prompt text, stop strings, parser and verdict.

The default is `ThinkSearchAnswer`; `ToolCallProtocol` is the format of function calls that models
know; `ThinkAct` is for environments with actions. Plugins add others through `register_protocols`,
most of them as an `InlineProtocol`. Protocols work on strings only and read model-written turns
only. They are called by environments (parse, render), by the rollout driver (instruction, stops,
opening) and by rewards through `Episode.format_score`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
