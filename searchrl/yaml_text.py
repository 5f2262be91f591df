"""YAML as configs here have it: plain values, and no dates.

Owns the dialect and the one kind of error it fails with. What the values mean, and how layers of
them merge, is `config.py`, the only caller.
"""

from __future__ import annotations

from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Plain YAML without dates: nothing here is a date, and a folder may be called like one."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(text: str) -> Any:
    """Parse a YAML text.

    Raises:
        ValueError: for whatever cannot be read, too large numbers and depths included.
    """
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error
