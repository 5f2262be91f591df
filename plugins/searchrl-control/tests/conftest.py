"""One small collection and one small model for all tests of this package."""

from __future__ import annotations

from typing import Any

import pytest
from control_toy import PASSAGES, QUESTIONS, write_model, write_toy


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The settings of the environment for the small collection."""
    folder = tmp_path_factory.mktemp("control")
    texts = [*(f"{p.title} {p.text}" for p in PASSAGES), *(text for text, _ in QUESTIONS.values())]
    return {
        "collection": str(write_toy(folder / "toy")),
        "model": str(write_model(folder / "model", texts)),
        "cache": str(folder / "cache"),
    }
