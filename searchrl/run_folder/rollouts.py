"""Files of trajectories: their names and order, how they are written, and how they are read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from searchrl.errors import DamagedError
from searchrl.files import replace_file
from searchrl.run_folder.manifest import Entry, find_fault
from searchrl.run_folder.shapes import RolloutRow, find_problem
from searchrl.trackers.rows import encode_row, parse_rows

FOLDER = "rollouts"
_WAY_ON = "Restore it from a copy, or delete it: its trajectories are then left out"


def write_rollouts(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one file of trajectories, whole or not at all; compressed if its name ends in .gz."""
    data = b"".join(map(encode_row, rows))
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=5, mtime=0)  # equal runs leave equal files
    replace_file(path, data)


def read_rollouts(path: Path, entry: Entry | None) -> Iterator[dict[str, Any]]:
    """The rows of one file, which is compared with its entry before the first one is given.

    One row at a time is in memory. Raises `DamagedError` if the file is not what was written, or no
    run writes a row like that.
    """
    if fault := find_fault(path, entry):
        raise DamagedError.of(path, fault, _WAY_ON)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while file.read(2**20):  # to its end first: there gzip compares its own checksum
                pass
            file.seek(0)
            for number, row in enumerate(parse_rows(file, may_be_torn=False), start=1):
                if isinstance(row, str):
                    raise DamagedError.of(path, row, _WAY_ON)
                if problem := find_problem(row, RolloutRow):
                    raise DamagedError.of(path, f"row {number}: {problem}", _WAY_ON)
                yield row
    except (EOFError, zlib.error, OSError) as error:  # gzip.BadGzipFile is an OSError
        raise DamagedError.of(path, str(error), _WAY_ON) from error


def name_rollout(row: Mapping[str, Any]) -> str:
    """The name of a rollout in links and on the command line: `after.40/eval/0/7/0`."""
    return f"{row['phase']}.{row['step']}/{row['rollout_id']}"


def rollout_files(run_dir: Path) -> list[Path]:
    """Files of trajectories, oldest first: the evaluation before, each step and what followed."""

    def age(file: Path) -> tuple[int, int, bool, str]:
        kind, step = parse_name(file.name)
        if step is not None:
            return 1, step, kind != "step", kind
        return 0 if kind.startswith("eval_before") else 2, 0, False, kind

    files = (run_dir / FOLDER).glob("*.jsonl*")
    return sorted((one for one in files if one.suffix in (".jsonl", ".gz")), key=age)


def parse_name(name: str) -> tuple[str, int | None]:
    """`step_000012.jsonl.gz` -> ("step", 12), and `eval_after.jsonl` -> ("eval_after", None)."""
    stem = name.split(".")[0]
    kind, _, number = stem.rpartition("_")
    return (kind, int(number)) if number.isdecimal() else (stem, None)


def may_hold(file: Path, phase: str) -> bool:
    """True if trajectories of a phase are in files of this name."""
    return parse_name(file.name)[0] in ("step" if phase == "train" else phase, f"eval_{phase}")
