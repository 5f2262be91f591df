"""Gymnasium text environments: the base `TextEnv` and what it is made of, `corpus`, adapters."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
