"""Algorithms: the record `Algorithm`, the built-in ones, and what their losses are made of.

`record` owns the record, `builtin` the factories; `parts` names what authors of others take from
`core`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
