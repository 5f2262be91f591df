"""What these tests share: the data beside the checkout, if there is some."""

import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
sys.path += [str(REPO / "tests"), *map(str, sorted(REPO.glob("plugins/searchrl-*")))]


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data sets beside the checkout; tests that need it skip without it."""
    path = REPO.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the real data sets (../shared/data) are not on this machine")
    return path
