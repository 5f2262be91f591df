"""What to change where the code of a plugin raised an error that Python alone cannot explain."""

from __future__ import annotations

from pathlib import Path


def find_remedy(error: BaseException) -> str:
    """What to change, or ""."""
    if not isinstance(error, FileNotFoundError):
        return ""
    name = Path(str(error.filename or "data.json")).name
    return (
        "a run may start in any folder: name the file as "
        f"Path(__file__).parent / {name!r}, or take its path as a setting"
    )
