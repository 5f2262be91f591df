"""The server of the core's tests is found here, too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))
