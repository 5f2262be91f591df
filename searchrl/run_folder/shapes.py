"""What the records of a run hold: checked when they are read.

Owns the shapes of `provenance.json`, `summary.json` and of lines in the files of rows, and the
error about a record of another shape. A checksum is no signature: whoever makes a run folder can
seal what no run ever wrote. Only what is read is described; other keys may hold anything. Callers:
the readers of this room, and the programs, whose progress is in `state.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    FiniteFloat,
    NonNegativeInt,
    ValidationError,
)

from searchrl.errors import DamagedError, show_value
from searchrl.run_folder.sealing import Sealed, read_sealed


class Shape(BaseModel):
    """What a JSON object has to look like. Nothing is converted: the object itself is used."""

    model_config = ConfigDict(strict=True)


class MetricShape(Shape):
    """A `Metric`."""

    value: FiniteFloat
    low: FiniteFloat = 0.0
    high: FiniteFloat = 0.0
    n: int


class MetricRow(Shape):
    """A line of `metrics.jsonl`."""

    step: NonNegativeInt
    phase: str
    metrics: dict[str, MetricShape]


class AlarmRow(Shape):
    """A line of `alarms.jsonl`."""

    step: NonNegativeInt


class _Written(Shape):
    bytes: NonNegativeInt
    sha256: str


class _Plugin(Shape):
    plugin: str
    version: str | None = None
    sha256: str | None = None


class _Provenance(Shape):
    started: str = ""
    duration_s: FiniteFloat | None = None
    versions: dict[str, str | None] = {}
    machine: dict[str, Any] = {}
    commit: dict[str, Any] | None = None
    plugins: list[_Plugin] = []
    checksums: dict[str, _Written] = {}
    changes: list[Any] = []


class _Summary(Shape):
    steps: NonNegativeInt | None = None
    before: dict[str, MetricShape] | None = None
    after: dict[str, MetricShape] | None = None


_SHAPES: dict[str, type[Shape]] = {"provenance.json": _Provenance, "summary.json": _Summary}


def read_record(path: Path, way_on: str) -> Sealed:
    """Read `provenance.json` or `summary.json`; `DamagedError` if it is not what runs write."""
    sealed = read_sealed(path, way_on)
    if problem := find_problem(sealed.value, _SHAPES[path.name]):
        raise DamagedError.of(path, problem, way_on)
    return sealed


def find_problem(value: object, shape: type[Shape]) -> str:
    """The first place in a value that is not of this shape, in words; "" if there is none."""
    try:
        shape.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = show_value(".".join(map(str, first["loc"])))
        return f"no run writes {place} like this ({first['msg']})"
    return ""
