"""Packages that a part needs and the plugin does not: what to install if one is missing.

Owns the sentence. Every part asks before its first import of such a package.
"""

from __future__ import annotations

import importlib.util

from searchrl import ConfigError


def need(who: str, extra: str, *modules: str) -> None:
    """Make sure that modules can be imported; none of them is imported here.

    Raises:
        ConfigError: one is missing; names it, and the extra of this package that brings it.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ConfigError(
                f"{who} needs {module}, which is not installed: run "
                f"`pip install 'searchrl-retrieval[{extra}]'`"
            )
