"""Rewards: components, answer scoring, the expression language and the scorer.

`expression` reads `0.2*format+em`, `scorer` runs and combines the components. Nothing here knows
tokens, groups or models.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
