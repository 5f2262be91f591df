"""Packages that a part needs and the plugin does not. Every part asks before their first import."""

from __future__ import annotations

import importlib.util

from searchrl import ConfigError


def need(who: str, extra: str, *modules: str) -> None:
    """Raise `ConfigError` with the extra to install if a module cannot be imported."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ConfigError(
                f"{who} needs {module}, which is not installed: run "
                f"`pip install 'searchrl-retrieval[{extra}]'`"
            )
