"""Beside the package, so that its tests find it uninstalled too; and the server of the core's."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
