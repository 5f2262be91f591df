"""Beside the package, so that its tests find it uninstalled too, and the package it builds on."""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("searchrl_retrieval") is None:
    sys.path.append(str(Path(__file__).resolve().parent.parent / "searchrl-retrieval"))
