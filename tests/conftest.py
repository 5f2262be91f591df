"""Shared fixtures: hypothesis profiles, and the optional real data beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout; tests that need it skip without it."""
    path = REPO.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the real data sets (../shared/data) are not on this machine")
    return path
