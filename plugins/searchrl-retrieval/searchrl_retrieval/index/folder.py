"""Opening an index folder, and refusing one that cannot be used.

Owns the checks: a manifest that is whole, files of the right size, the kind, its settings and the
corpus that are asked for. What does not fit is refused with one sentence that names the folder and
the command that builds it again. Opening reads the manifest and maps the files. Called by `places`,
`build` and the commands.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl import SearchRLError, show_value, suggest_path
from searchrl.contracts import Retriever
from searchrl_retrieval.index.kinds import PLACES, IndexKind, find_kind
from searchrl_retrieval.index.manifest import (
    BUILDING,
    NAME,
    STATE,
    IndexFault,
    Manifest,
    find_fault,
    read_manifest,
)
from searchrl_retrieval.index.passages import PassageStore, open_passages


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """An index that can be used: its folder, what it says of itself, and its passages."""

    folder: Path
    manifest: Manifest
    passages: PassageStore

    @property
    def files(self) -> Path:
        """The folder that the kind wrote."""
        return self.folder / self.manifest.data / "index"

    @property
    def command(self) -> str:
        """The command that builds it again."""
        made = self.manifest
        return build_command(self.folder, made.kind, made.settings, made.sources)

    def is_of(self, kind: IndexKind) -> bool:
        """Whether the files are those that `kind` would write for these passages."""
        return not self._find_difference(kind)

    def retriever(self, kind: IndexKind) -> Retriever:
        """The retriever of this index, with the search settings of `kind`.

        If another process replaces the index meanwhile, the new one is opened.

        Raises:
            IndexFault: it was built by another kind, version or with other settings, or a file is
                gone.
        """
        if difference := self._find_difference(kind):
            raise IndexFault(
                f"index '{self.folder}' {difference}. Build it again: "
                + build_command(self.folder, kind.name, kind.built_with, self.manifest.sources)
            )
        try:
            return kind.open(self.files, self.passages)
        except FileNotFoundError:
            now = open_index(self.folder)
            if now.manifest.data == self.manifest.data:
                raise
        return now.retriever(kind)

    def ensure_corpus(self, fingerprint: str, count: int) -> None:
        """Refuse the index if it is of another corpus.

        Raises:
            IndexFault: says how many passages there were and are, and how to build it again.
        """
        if fingerprint != self.manifest.fingerprint:
            raise IndexFault(
                f"index '{self.folder}' is outdated: the corpus has changed since it was built "
                f"({self.manifest.count:,} passages then, {count:,} now). Build it again: "
                f"{self.command}"
            )

    def _find_difference(self, kind: IndexKind) -> str:
        made = self.manifest
        if made.kind != kind.name:
            return f"is one of the retriever {made.kind}, not of {kind.name}"
        if made.kind_version != kind.version:
            return (
                f"is outdated: its files have version {made.kind_version}, and this version of "
                f"{kind.name} reads {kind.version}"
            )
        wanted: dict[str, Any] = json.loads(json.dumps(dict(kind.built_with)))
        for key in sorted({**made.settings, **wanted}.keys() - set(PLACES)):
            if (then := made.settings.get(key)) != (now := wanted.get(key)):
                return f"was built with {key}={show_value(then)}, not {show_value(now)}"
        return ""


def find_index(folder: Path) -> bool:
    """Whether a folder has an index, whole or not."""
    return (folder / NAME).is_file()


def open_index(folder: Path, *, is_deep: bool = False, remedy: str = "") -> Index:
    """Open the index of a folder.

    Sizes are compared with the manifest; with `is_deep` every byte is read and summed up.
    `remedy` is what to do about a fault, if it is not the command that builds the index again.

    Raises:
        IndexFault: there is none, or it is half-written, damaged or of another format.
    """
    try:
        return _open(folder, is_deep, remedy)
    except _Fault as fault:
        if fault.manifest is None or _read_data_name(folder) == fault.manifest.data:
            raise IndexFault(str(fault)) from fault.__cause__
    try:
        return _open(folder, is_deep, remedy)  # somebody replaced it meanwhile
    except _Fault as fault:
        raise IndexFault(str(fault)) from fault.__cause__


def build_command(
    folder: Path, kind: str, settings: Mapping[str, Any], sources: tuple[str, ...]
) -> str:
    """The command that builds an index in a folder, with the settings that are no defaults."""
    corpus = sources or ("--corpus", "CORPUS")
    words = ["searchrl", "index", "build", *corpus, "--retriever", kind, "--out", str(folder)]
    defaults = _defaults_of(kind)
    for key, value in settings.items():
        if key not in defaults or defaults[key] != value:
            words += ["--set", f"retriever.{key}={json.dumps(value, ensure_ascii=False)}"]
    return shlex.join(words)


def _defaults_of(kind: str) -> Mapping[str, Any]:
    """What an index of this kind is built with if nobody says; nothing if there is no default."""
    try:
        return dict(find_kind(kind)().built_with)
    except (SearchRLError, ImportError, TypeError):  # unknown, not installed, or needs a setting
        return {}


class _Fault(Exception):
    """What is wrong with the index that a manifest speaks of."""

    def __init__(self, text: str, manifest: Manifest | None) -> None:
        super().__init__(text)
        self.manifest = manifest


def _open(folder: Path, is_deep: bool, remedy: str) -> Index:
    manifest = None
    try:
        manifest = read_manifest(folder)
        if fault := find_fault(folder, manifest, is_deep=is_deep):
            raise IndexFault(fault)
        store = open_passages(folder / manifest.data / "passages")
        if store.fingerprint != manifest.fingerprint:
            raise IndexFault("is damaged: its passages are not those that it was built of")
    except FileNotFoundError:
        raise _Fault(_explain_missing(folder), None) from None
    except SearchRLError as error:
        fault = str(error) if isinstance(error, IndexFault) else f"is damaged: {error}"
        remedy = remedy or f"Build it again: {_command_of(folder, manifest)}"
        raise _Fault(f"index '{folder}' {fault}. {remedy}", manifest) from error
    return Index(folder, manifest, store)


def _read_data_name(folder: Path) -> str | None:
    try:
        return read_manifest(folder).data
    except (OSError, IndexFault):
        return None


def _explain_missing(folder: Path) -> str:
    state = _read_state(folder)
    if state is not None:
        return (
            f"index '{folder}' is not finished: its build was stopped. This goes on with it: "
            f"{_command_of(folder, None)}"
        )
    if not folder.exists():
        hint = suggest_path(folder)
        return f"no index '{folder}'.{hint} This builds one: {_command_of(folder, None)}"
    return f"'{folder}' holds no index. This builds one: {_command_of(folder, None)}"


def _command_of(folder: Path, manifest: Manifest | None) -> str:
    if manifest is not None:
        return build_command(folder, manifest.kind, manifest.settings, manifest.sources)
    state = _read_state(folder) or {}
    sources = tuple(str(source) for source in state.get("sources", ()))
    return build_command(folder, state.get("kind", "NAME"), state.get("settings", {}), sources)


def _read_state(folder: Path) -> dict[str, Any] | None:
    """What the build that was killed here was of."""
    try:
        state = json.loads((folder / BUILDING / STATE).read_bytes())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None
