"""Word lists: JSON files of the package, read when first needed as typed values."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter

ASSETS = Path(__file__).resolve().parents[1] / "assets"

EXACT = ConfigDict(extra="forbid")
"""For dataclasses: a key that the type does not have is an error."""

Kind = TypeVar("Kind")


def load_word_list(kind: type[Kind], path: Path) -> Kind:
    """Read a JSON file of the package as a value of `kind`."""
    return TypeAdapter(kind).validate_json(path.read_bytes())
