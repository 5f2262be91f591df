"""Gymnasium text environments: the base `TextEnv` and what it is made of, `corpus`, adapters.

`TextAdapter` plays any Gymnasium environment whose observations are texts. `Shown`, `names_in` and
`UNKNOWN` are for scripted experts. `regulations` is an environment of its own.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
