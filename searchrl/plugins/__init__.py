"""The plugin system: how names become objects.

`loading` finds plugins and calls their hooks, `registration` checks what they register,
`registry` holds it; `parts` makes what is made of other parts.
"""

from searchrl.plugins.loading import load_plugins as load_plugins
from searchrl.plugins.provenance import Origin as Origin
from searchrl.plugins.registry import Entry as Entry
from searchrl.plugins.registry import PluginFailure as PluginFailure
from searchrl.plugins.registry import Registry as Registry
