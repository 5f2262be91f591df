"""The configuration: one tree of settings, every key explained. Re-exports what programs use."""

from searchrl.config.tree import Part as Part
from searchrl.config.tree import RunConfig as RunConfig
from searchrl.config.tree import build_config as build_config
from searchrl.config.tree import load_preset as load_preset
from searchrl.config.tree import load_yaml as load_yaml
from searchrl.config.tree import merge as merge
from searchrl.config.tree import parse_set as parse_set
from searchrl.config.tree import parse_sets as parse_sets
from searchrl.config.tree import preset_names as preset_names
