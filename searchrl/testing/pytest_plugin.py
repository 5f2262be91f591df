"""Fixtures for authors' tests.

Owns `make_plugin`. A test file or `conftest.py` enables it with the line
`pytest_plugins = ["searchrl.testing.pytest_plugin"]`. No other module here imports pytest.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from searchrl.plugins import load_plugins
from searchrl.plugins.registry import Registry

MakePlugin = Callable[..., Registry]
"""`make_plugin(text, name="plugin") -> Registry`."""


@pytest.fixture
def make_plugin(tmp_path: Path) -> MakePlugin:
    """Return a function that writes a plugin file and loads it: `make_plugin(text, name)`.

    `text` is the file's source, dedented; `name` its name without `.py`. Returns the `Registry`
    with the built-ins and this plugin; the file is `registry.owners[-1].file`. Raises
    `PluginError` with the line if the plugin cannot be loaded.
    """

    def make(text: str, name: str = "plugin") -> Registry:
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return load_plugins([str(path)], strict=True, entry_points=False)

    return make
