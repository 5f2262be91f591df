"""Files of trajectories: their names and order, how they are written, and how they are read.

A compressed file holds a checksum of its own (gzip); beside a plain one lies `NAME.sha256`, as
`sha256sum -c` reads it.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from searchrl.errors import DamagedError
from searchrl.files import replace_file
from searchrl.run_folder.sealing import CHANGED, file_fault, read_whole
from searchrl.run_folder.shapes import RolloutRow, find_problem
from searchrl.trackers.rows import encode_row, parse_rows

_WAY_ON = "Restore it from a copy, or delete it: its trajectories are then left out"


def write_rollouts(
    folder: Path, name: str, rows: Iterable[Mapping[str, Any]], *, compress: bool
) -> None:
    """Write one file of trajectories to `folder`, whole or not at all."""
    data = b"".join(map(encode_row, rows))
    if compress:
        # mtime=0: equal runs leave equal files.
        replace_file(folder / f"{name}.jsonl.gz", gzip.compress(data, compresslevel=5, mtime=0))
        return
    path = folder / f"{name}.jsonl"
    # First, so that no kill leaves rows without their checksum.
    replace_file(_checksum_of(path), f"{hashlib.sha256(data).hexdigest()}  {path.name}\n".encode())
    replace_file(path, data)


def read_rollouts(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one file, compared with its checksum before the first one is given.

    One row at a time is in memory. Raises `DamagedError` if the file is not what was written, or no
    run writes a row like that.
    """
    if fault := file_fault(path):
        raise DamagedError.of(path, fault, _WAY_ON)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            # To its end first, where gzip compares its checksum; that of others is beside the file.
            digest = hashlib.sha256()
            while block := file.read(2**20):
                digest.update(block)
            if path.suffix != ".gz" and _checksum_of(path).exists():
                written = read_whole(_checksum_of(path), _WAY_ON).split()[:1]
                if written != [digest.hexdigest().encode()]:
                    raise DamagedError.of(path, CHANGED, _WAY_ON)
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


def remove_rollouts(path: Path) -> None:
    """Remove one file of trajectories and its checksum."""
    path.unlink()
    _checksum_of(path).unlink(missing_ok=True)


def _checksum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def rollout_files(run_dir: Path) -> list[Path]:
    """Files of trajectories, oldest first: the evaluation before, each step and what followed."""

    def age(file: Path) -> tuple[int, int, bool, str]:
        kind, step = parse_name(file.name)
        if step is not None:
            return 1, step, kind != "step", kind
        return 0 if kind.startswith("eval_before") else 2, 0, False, kind

    files = (run_dir / "rollouts").glob("*.jsonl*")
    return sorted((f for f in files if f.suffix in (".jsonl", ".gz")), key=age)


def parse_name(name: str) -> tuple[str, int | None]:
    """`step_000012.jsonl.gz` -> ("step", 12), and `eval_after.jsonl` -> ("eval_after", None)."""
    stem = name.split(".")[0]
    kind, _, number = stem.rpartition("_")
    return (kind, int(number)) if number.isdigit() else (stem, None)


def may_hold(file: Path, phase: str) -> bool:
    """True if trajectories of a phase are in files of this name."""
    return parse_name(file.name)[0] in ("step" if phase == "train" else phase, f"eval_{phase}")
