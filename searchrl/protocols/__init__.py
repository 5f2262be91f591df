"""Tag protocols: one object per protocol owns its prompt text, stop strings, parser and verdict.

The default is `ThinkSearchAnswer`. Plugins add others through `register_protocols`, most of them as
an `InlineProtocol`. They work on strings only and read turns that a model wrote.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
