"""Training state on disk without pickle: tensors as safetensors, the rest as JSON.

Owns how a nested state (of an optimiser, of an algorithm) becomes `NAME.json` and, beside it,
`NAME-00001.safetensors`, …, and back. Reading such files runs no code, whoever wrote them. Whether
they are whole is the business of the checkpoint.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from searchrl.engine.model.sharding import whole
from searchrl.errors import DamagedError, PluginError

MAX_FILE_BYTES = 2**30
"""Most tensors of one file: writing it takes that memory once more."""

_PLAIN = (str, int, bool, type(None))


def save_state(
    folder: Path, name: str, state: Mapping[str, Any], *, is_writer: bool = True
) -> None:
    """Write a state of dicts, lists, tuples, sets, texts, numbers, None and tensors.

    A tensor that occurs twice is written once, without its device. Sharded tensors are gathered,
    one file at a time: all processes must call this, one of them as the writer.

    Raises:
        PluginError: if it holds something else; says where.
    """
    tensors: list[Tensor] = []
    keys: dict[int, str] = {}

    def keep(tensor: Tensor) -> str:
        if id(tensor) not in keys:
            keys[id(tensor)] = f"{len(tensors):05d}"
            tensors.append(tensor)
        return keys[id(tensor)]

    text = json.dumps(_encode(state, keep, name), allow_nan=False)
    names = iter(keys.values())
    for number, piece in enumerate(in_pieces(tensors, MAX_FILE_BYTES), start=1):
        copies = {next(names): whole(tensor).contiguous().clone() for tensor in piece}
        if is_writer:
            save_file(copies, folder / f"{name}-{number:05d}.safetensors")
    if is_writer:
        (folder / f"{name}.json").write_text(text, "utf-8")


def load_state(folder: Path, name: str) -> dict[str, Any]:
    """Read what `save_state` wrote; tensors are on the CPU.

    Raises:
        DamagedError: if a file is not what was written.
    """
    path = folder / f"{name}.json"
    way_on = "Restore it from a copy"
    tensors: dict[str, Tensor] = {}
    try:
        for path in sorted(folder.glob(f"{name}-*.safetensors")):
            tensors |= load_file(path)
        path = folder / f"{name}.json"
        state: dict[str, Any] = _decode(json.loads(path.read_text("utf-8")), tensors)
    except (OSError, ValueError, LookupError, TypeError, SafetensorError, RecursionError) as error:
        raise DamagedError.of(path, f"it cannot be read ({error})", way_on) from error
    return state


def _encode(value: Any, keep: Any, where: str) -> Any:
    """Return JSON for a value; a type that JSON lacks is a list that begins with its name."""
    if isinstance(value, Tensor):
        return ["tensor", keep(value)]
    if type(value) is float:
        return value if math.isfinite(value) else ["float", repr(value)]
    if type(value) in _PLAIN:
        return value
    if type(value) in (dict, OrderedDict):
        pairs = [
            [_encode(key, keep, where), _encode(one, keep, f"{where}[{key!r}]")]
            for key, one in value.items()
        ]
        return ["dict", pairs]
    if type(value) in (list, tuple, set, frozenset):
        return [
            type(value).__name__,
            [_encode(one, keep, f"{where}[{i}]") for i, one in enumerate(value)],
        ]
    raise PluginError(
        f"{where} is of type {type(value).__name__}, which a checkpoint cannot hold; expected "
        "numbers, texts, None, tensors, and dicts, lists, tuples or sets of them"
    )


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, list):
        return value
    kind, inner = value
    match kind:
        case "tensor":
            return tensors[inner]
        case "float":
            return float(inner)
        case "dict":
            return {_decode(key, tensors): _decode(one, tensors) for key, one in inner}
        case "list" | "tuple" | "set" | "frozenset":
            make: Any = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind]
            return make(_decode(one, tensors) for one in inner)
        case _:
            raise ValueError(f"unknown kind {kind!r}")


def in_pieces(tensors: Iterable[Tensor], max_bytes: int) -> Iterator[list[Tensor]]:
    """Neighbours of at most `max_bytes` together; a larger one is alone."""
    piece: list[Tensor] = []
    num_bytes = 0
    for tensor in tensors:
        if piece and num_bytes + tensor.nbytes > max_bytes:
            yield piece
            piece, num_bytes = [], 0
        piece.append(tensor)
        num_bytes += tensor.nbytes
    if piece:
        yield piece
