"""The kit for plugin authors: conformance, reward cases, scripted policies.

`assert_conforms("capitals.py")` is `searchrl check` as one assertion. Imports no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
