"""Beside the package, so that its tests find it uninstalled too."""
