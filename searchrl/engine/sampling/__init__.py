"""Generators, which sample tokens: the contract and its implementations.

The contract, and the automaton that finds stop strings in sampled ids, are public.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
