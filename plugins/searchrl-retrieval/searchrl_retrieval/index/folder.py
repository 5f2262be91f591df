"""The contract of retrievers that are kept in an index folder, and opening one.

A folder needs a whole manifest, files of the right size, and the kind, the settings and the corpus
that are wanted. All else is refused with the folder and the command that builds it again.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from searchrl import DamagedError, DataError, Manifest, show_value, suggest_path
from searchrl.contracts import Retriever
from searchrl_retrieval.index.manifest import NAME, IndexFault, IndexManifest, read_manifest
from searchrl_retrieval.index.passages import PassageStore

FILES, PASSAGES, BUILDING = "index", "passages.sqlite", "building"
"""Within the data of an index: what the kind wrote, and the corpus. Beside it: a build."""

PLACES = ("model",)
"""Settings that say where something is. They stand in the command that builds an index again, but
an index is not refused because of them: a model that was moved is still the same model."""


class IndexKind(Protocol):
    """A retriever with its settings, before it has an index.

    A frozen dataclass whose fields are the settings, so that `KIND(**settings)` makes one. Their
    ranges are in the annotations (see `places.IndexFactory`).

    Attributes:
        name: the registered name of the retriever.
        keep_from: passages from which an index is kept on disk though nobody asked for it. Smaller
            corpora are indexed anew by every process, in a temporary folder.
    """

    name: ClassVar[str]
    keep_from: ClassVar[int]

    @property
    def built_with(self) -> Mapping[str, Any]:
        """The settings that decide what is in the files, as JSON values.

        A folder that was built with others is refused. Settings of a search alone may change.
        """

    def build(self, passages: PassageStore, folder: Path, previous: Index | None) -> None:
        """Write the files of the index into `folder`; no pickle among them.

        After a kill it is called again, and `folder` has what was written. `previous` is the index
        to extend: the same kind and settings, and its passages are the first of `passages`.
        """

    def open(self, folder: Path, passages: PassageStore) -> Retriever:
        """Make a retriever of the files that `build` wrote; it is used by several threads."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """An index that can be used: its folder, its manifest, and its passages."""

    folder: Path
    manifest: IndexManifest
    passages: PassageStore

    @property
    def files(self) -> Path:
        """The folder that the kind wrote."""
        return self.folder / self.manifest.data / FILES

    def retriever(self, kind: IndexKind) -> Retriever:
        """The retriever of this index, with the search settings of `kind`."""
        if difference := self._find_difference(kind):
            sources = self.manifest.sources
            raise _refuse(self.folder, difference, kind.name, kind.built_with, sources)
        return kind.open(self.files, self.passages)

    def ensure_corpus(self, fingerprint: str, count: int) -> None:
        """Raise `IndexFault` if the index is of another corpus."""
        made = self.manifest
        if fingerprint != made.fingerprint:
            fault = (
                "is outdated: the corpus has changed since it was built "
                f"({made.count:,} passages then, {count:,} now)"
            )
            raise _refuse(self.folder, fault, made.kind, made.settings, made.sources)

    def _find_difference(self, kind: IndexKind) -> str:
        made = self.manifest
        if made.kind != kind.name:
            return f"is one of the retriever {made.kind}, not of {kind.name}"
        wanted: dict[str, Any] = json.loads(json.dumps(dict(kind.built_with)))
        for key in sorted({**made.settings, **wanted}.keys() - set(PLACES)):
            if (then := made.settings.get(key)) != (now := wanted.get(key)):
                return f"was built with {key}={show_value(then)}, not {show_value(now)}"
        return ""


def has_index(folder: Path) -> bool:
    """True if a folder has an index, whole or not."""
    return (folder / NAME).is_file()


def open_index(folder: Path, *, is_deep: bool = False, remedy: str = "") -> Index:
    """Open the index of a folder.

    Sizes are compared with the manifest; with `is_deep` every byte is read and summed up.
    `remedy` stands in an `IndexFault` instead of the command that builds the index again.
    """
    if not has_index(folder):
        raise IndexFault(_explain_missing(folder))
    way_on = remedy or _build_again(folder, "NAME", {}, ())
    try:
        made = read_manifest(folder, way_on)
        way_on = remedy or _build_again(folder, made.kind, made.settings, made.sources)
        Manifest({}, {**made.files}).verify(folder / made.data, deep=is_deep, way_on=way_on)
        return Index(folder, made, PassageStore(folder / made.data / PASSAGES))
    except DamagedError as error:
        raise IndexFault(str(error)) from error
    except DataError as error:
        raise IndexFault(f"index '{folder}' is damaged: {error}. {way_on}") from error


def _explain_missing(folder: Path) -> str:
    if (folder / BUILDING / "data").is_dir():
        return (
            f"index '{folder}' is not finished: its build was stopped. The same command goes on "
            "with it: searchrl index build"
        )
    fault = "holds no index." if folder.exists() else f"is not there.{suggest_path(folder)}"
    return f"no index: '{folder}' {fault} This builds one: {_command(folder, 'NAME', {}, ())}"


def _refuse(
    folder: Path, fault: str, kind: str, settings: Mapping[str, Any], sources: tuple[str, ...]
) -> IndexFault:
    return IndexFault(f"index '{folder}' {fault}. {_build_again(folder, kind, settings, sources)}")


def _build_again(
    folder: Path, kind: str, settings: Mapping[str, Any], sources: tuple[str, ...]
) -> str:
    return f"Build it again: {_command(folder, kind, settings, sources)}"


def _command(folder: Path, kind: str, settings: Mapping[str, Any], sources: tuple[str, ...]) -> str:
    """The command that builds an index in a folder."""
    corpus = sources or ("--corpus", "CORPUS")
    words = ["searchrl", "index", "build", *corpus, "--retriever", kind, "--out", str(folder)]
    for key, value in settings.items():
        words += ["--set", f"retriever.{key}={json.dumps(value, ensure_ascii=False)}"]
    return shlex.join(words)
