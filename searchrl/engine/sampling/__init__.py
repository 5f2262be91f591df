"""What samples tokens: the generator contract and its implementations.

What it exports is public, for packages with a generator: the contract, and the automaton that finds
stop strings in sampled ids.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
