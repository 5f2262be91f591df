"""The configuration: one tree of settings, every key explained. Re-exports what programs use.

`tree` puts the sections together, reads YAML and merges; `sections` holds every key with its
default and reason; `keys` describes them for `searchrl config`; `yaml_text` is the YAML dialect.
"""

from searchrl.config.tree import (
    RunConfig,
    build_config,
    load_preset,
    load_yaml,
    merge,
    parse_set,
    parse_sets,
    preset_names,
)

__all__ = [
    "RunConfig",
    "build_config",
    "load_preset",
    "load_yaml",
    "merge",
    "parse_set",
    "parse_sets",
    "preset_names",
]
