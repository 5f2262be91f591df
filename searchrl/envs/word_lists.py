"""Word lists: JSON files of the package, read when first needed and checked.

Owns where they are and how one becomes typed values. What the lists mean is in the callers:
`describe` and, in `regulations`, `names` and `wordings`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from searchrl.errors import DataError

ASSETS = Path(__file__).resolve().parents[1] / "assets"

EXACT = ConfigDict(extra="forbid")
"""For `with_config`: a key that the type does not have is an error."""

Kind = TypeVar("Kind")


def load_word_list(kind: type[Kind], path: Path) -> Kind:
    """Read a JSON file as a value of `kind`.

    Raises:
        DataError: the file cannot be read, or holds something else; names the file and the places.
    """
    try:
        text = path.read_bytes()
        return TypeAdapter(kind).validate_json(text)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
    except ValidationError as error:
        faults = [
            f"  {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
        ]
        problem = "\n".join(["is not a word list of searchrl:", *faults])
    raise DataError(f"{path}: {problem}\nThe file belongs to searchrl: install searchrl again.")
