"""The plugin system: how names become objects.

`loading` finds plugins and calls their hooks, `registration` checks what they register,
`registry` holds it; `make` builds an environment from names.
"""

from searchrl.plugins.loading import load_plugins
from searchrl.plugins.provenance import Origin, Owner
from searchrl.plugins.registry import Entry, PluginFailure, Registry

__all__ = [
    "Entry",
    "Origin",
    "Owner",
    "PluginFailure",
    "Registry",
    "load_plugins",
]
