"""The file of a memory that outlives its episodes: a note per line, only ever appended to.

Owns its lock and its checks, and how a wrong field of a JSON text is told. What is found in it is
the wrapper's matter.
"""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import Annotated, BinaryIO, TypeVar

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from searchrl import ConfigError, show_value, suggest_path

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Strict(BaseModel):
    """A JSON object without unknown fields, its values not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Note(Strict):
    """A text that an episode kept; `task` is the id of its task."""

    text: Text
    task: str = ""


Kind = TypeVar("Kind", bound=Strict)


def parse_as(kind: type[Kind], text: bytes, place: object, expected: str) -> Kind:
    """Read a JSON text; ConfigError says the place, the field, its value and what is expected."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field, what = ".".join(map(str, first["loc"])), first["msg"]
        if first["type"] in ("missing", "extra_forbidden"):
            absence = "is missing" if first["type"] == "missing" else "is unknown"
            what = f"field '{field}' {absence}"
        elif field:
            what = f"{field} = {show_value(first['input'])}: {what}"
        raise ConfigError(f"{place}: {what}; expected {expected}") from error


class NoteFile:
    """The notes of a file, which several processes may add to.

    Raises:
        ConfigError: its folder is not there, it cannot be opened, it belongs to another user or is
            open to others, a line of it is no note, or lines that were read are gone.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise ConfigError(
                f"wrapper memory: file = {show_value(path)}, and there is no folder "
                f"'{self.path.parent}'.{suggest_path(self.path.parent)} Make it, or name another"
            )
        self._lock = FileLock(f"{path}.lock")
        self._notes: list[Note] = []
        self._size = 0  # bytes of the lines that were read
        try:
            self._open().close()
        except OSError as error:
            raise ConfigError(
                f"wrapper memory: file = {show_value(path)}: {error.strerror}; name a file "
                "that you may read and write"
            ) from error
        if (status := self.path.stat()).st_uid != os.getuid():
            raise ConfigError(
                f"wrapper memory: file = {show_value(path)} belongs to another user "
                f"({status.st_uid}), and memories are not shared; name a file of your own"
            )
        if status.st_mode & 0o077:
            raise ConfigError(
                f"wrapper memory: file = {show_value(path)} is open to other users, and memories "
                f"are not shared; close it with: chmod 600 {quote(path)}"
            )
        self.read()

    def read(self) -> tuple[Note, ...]:
        """Return the notes so far. A last line that a kill cut off is none."""
        with self._open() as file:
            lines = self._read_on(file).rpartition(b"\n")[0].split(b"\n")
        for line in lines if lines != [b""] else []:
            place = f"{self.path}:{len(self._notes) + 1}"
            self._notes.append(parse_as(Note, line, place, 'a note: {"text": "…", "task": "…"}'))
            self._size += len(line) + 1
        return tuple(self._notes)

    def add(self, note: Note) -> None:
        """Append a note; once it returns, a kill does not lose it."""
        with self._lock, self._open() as file:
            end = self._read_on(file).rfind(b"\n") + 1
            file.truncate(self._size + end)  # cuts off a line that a kill left unfinished
            file.write(note.model_dump_json().encode() + b"\n")

    def _read_on(self, file: BinaryIO) -> bytes:
        """Return the bytes behind the lines that were read."""
        if file.seek(0, os.SEEK_END) < self._size:
            raise ConfigError(
                f"wrapper memory: '{self.path}' became shorter while a run used it; put the notes "
                "back, or begin the run again and leave its file alone"
            )
        file.seek(self._size)
        return file.read()

    def _open(self) -> BinaryIO:
        # Nobody else may read it or write into it.
        return open(self.path, "a+b", opener=lambda name, flags: os.open(name, flags, 0o600))
