"""Index folders: built, opened, shared, refused, and taken up again after a kill."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from searchrl_retrieval.index.build import build_index, holding
from searchrl_retrieval.index.folder import open_index
from searchrl_retrieval.index.manifest import CACHE_VARIABLE, IndexFault, write_manifest
from searchrl_retrieval.index.passages import PassageStore
from searchrl_retrieval.index.places import open_or_build
from searchrl_retrieval.index.work import Work

from searchrl.contracts import Passage

PASSAGES = [Passage(f"p{i}", f"text of passage {i}", f"title {i}") for i in range(10)]


@dataclass(frozen=True)
class Lengths:
    """A kind for tests: it stores the length of every text, in parts of four."""

    scale: int = 1
    dies_at: int = -1
    log: list[str] = field(default_factory=list, compare=False)
    name: str = "lengths"
    version: int = 1
    keep_from: int = 5

    @property
    def built_with(self) -> Mapping[str, Any]:
        return {"scale": self.scale}

    def build(self, passages: PassageStore, work: Work) -> None:
        first = work.previous.count if work.previous else 0
        lengths = json.loads((work.previous.folder / "l.json").read_text()) if first else []
        for at in range(first, len(passages), 4):
            if not work.has(str(at)):
                with work.writing(str(at)) as path:
                    if at == self.dies_at:
                        raise KeyboardInterrupt
                    self.log.append(f"part {at}")
                    sizes = [len(p.text) * self.scale for p in passages[at : at + 4]]
                    path.write_text(json.dumps(sizes))
            lengths += json.loads(work.part(str(at)).read_text())
        (work.folder / "l.json").write_text(json.dumps(lengths))

    def open(self, folder: Path, passages: PassageStore) -> Any:
        self.log.append("open")
        return Opened(json.loads((folder / "l.json").read_text()), passages)


class Opened:
    def __init__(self, lengths: list[int], passages: PassageStore) -> None:
        self.lengths = lengths
        self.passages = passages

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [list(self.passages[:k]) for _ in queries]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_index_is_built_and_opened(tmp_path: Path) -> None:
    kind = Lengths()
    built = build_index(kind, iter(PASSAGES), tmp_path / "i", sources=["--corpus", "/c.jsonl"])
    assert list(built.passages) == PASSAGES
    opened = open_index(tmp_path / "i", is_deep=True)
    assert opened.retriever(kind).lengths == [len(p.text) for p in PASSAGES]
    assert sorted(p.name for p in (tmp_path / "i").iterdir()) == [
        ".lock",
        opened.manifest.data,
        "manifest.json",
    ]


def test_a_killed_build_goes_on_where_it_was_and_leaves_the_old_index(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    build_index(Lengths(scale=2), PASSAGES, folder)
    log: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        build_index(Lengths(dies_at=8, log=log), PASSAGES, folder)
    assert open_index(folder).retriever(Lengths(scale=2)).lengths[0] == 2 * len(PASSAGES[0].text)
    built = build_index(Lengths(log=log), PASSAGES, folder)
    assert log == ["part 0", "part 4", "part 8"]
    assert built.retriever(Lengths()).lengths == [len(p.text) for p in PASSAGES]


def test_what_a_killed_build_left_is_not_used_for_another_corpus(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_index(Lengths(dies_at=8), PASSAGES, tmp_path / "i")
    log: list[str] = []
    build_index(Lengths(log=log), [*PASSAGES[::-1]], tmp_path / "i")
    assert log == ["part 0", "part 4", "part 8"]


def test_half_written_index_is_refused_with_the_command_that_goes_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_index(Lengths(dies_at=8), PASSAGES, tmp_path / "i", sources=["--corpus", "/c.jsonl"])
    wanted = (
        f"index '{tmp_path}/i' is not finished: its build was stopped. This goes on with it: "
        f"searchrl index build --corpus /c.jsonl --retriever lengths --out {tmp_path}/i "
        "--set retriever.scale=1"
    )
    with pytest.raises(IndexFault) as refused:
        open_index(tmp_path / "i")
    assert str(refused.value) == wanted


def test_cut_file_is_refused_at_once_and_a_flipped_byte_on_verification(tmp_path: Path) -> None:
    built = build_index(Lengths(), PASSAGES, tmp_path / "i")
    file = built.files / "l.json"
    data = file.read_bytes()
    file.write_bytes(data.replace(b"1", b"2", 1))
    open_index(tmp_path / "i")
    with pytest.raises(IndexFault, match="index/l.json: its content is not what was"):
        open_index(tmp_path / "i", is_deep=True)
    file.write_bytes(data[:-1])
    with pytest.raises(IndexFault, match="index/l.json: it has .* bytes and was .* Build it"):
        open_index(tmp_path / "i")
    file.unlink()
    with pytest.raises(IndexFault, match="index/l.json: it is missing"):
        open_index(tmp_path / "i")


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format": 2, "sha256": ""}', b"\xff\x00"])
def test_damaged_manifest_is_refused(tmp_path: Path, damage: bytes) -> None:
    build_index(Lengths(), PASSAGES, tmp_path / "i")
    (tmp_path / "i" / "manifest.json").write_bytes(damage)
    with pytest.raises(IndexFault, match="is (damaged|outdated): .* Build it again: searchrl"):
        open_index(tmp_path / "i")


def test_edited_manifest_is_refused(tmp_path: Path) -> None:
    build_index(Lengths(), PASSAGES, tmp_path / "i")
    path = tmp_path / "i" / "manifest.json"
    path.write_text(path.read_text().replace('"scale": 1', '"scale": 2'))
    with pytest.raises(IndexFault, match="its checksum is wrong"):
        open_index(tmp_path / "i")


def test_index_of_another_corpus_settings_or_version_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "handbook"
    build_index(Lengths(), PASSAGES, index, sources=["--corpus", "/c.jsonl"])
    with pytest.raises(IndexFault, match=r"outdated: the corpus has changed .*10 .* then, 9 now"):
        open_or_build(Lengths(), PASSAGES[1:], index)
    with pytest.raises(IndexFault, match=r"built with scale=1, not 3\. .*retriever.scale=3"):
        open_or_build(Lengths(scale=3), PASSAGES, index)
    with pytest.raises(IndexFault, match="have version 1, and this version of lengths reads 2"):
        open_or_build(Lengths(version=2), PASSAGES, index)
    with pytest.raises(IndexFault, match=r"no index .*/handbok.\. Did you mean .*/handbook"):
        open_or_build(Lengths(), PASSAGES, tmp_path / "handbok")


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(IndexFault, match="thesis.tex"):
        build_index(Lengths(), PASSAGES, tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_one_process_at_a_time_builds(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with holding(folder), pytest.raises(IndexFault, match="is being built by another process"):
        build_index(Lengths(), PASSAGES, folder)


def test_index_that_nobody_named_is_kept_and_found_again(cache: Path) -> None:
    log: list[str] = []
    kind = Lengths(log=log)
    open_or_build(kind, PASSAGES)
    assert len(list(cache.iterdir())) == 1
    open_or_build(kind, tuple(PASSAGES))
    assert log == ["part 0", "part 4", "part 8", "open", "open"]
    open_or_build(Lengths(scale=2), PASSAGES)
    open_or_build(kind, PASSAGES[1:])
    assert len(list(cache.iterdir())) == 3


def test_small_corpus_leaves_nothing_behind(cache: Path) -> None:
    retriever: Any = open_or_build(Lengths(), PASSAGES[:4])
    folder = retriever.passages.path
    assert folder.is_dir() and not cache.exists()
    assert retriever.search(["x"], 1) == [[PASSAGES[0]]]
    del retriever
    assert not folder.exists()


def test_small_corpus_leaves_nothing_behind_if_its_build_fails(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt) as raised:  # it holds every frame of the build
        open_or_build(Lengths(dies_at=0), PASSAGES[:4])
    assert raised.value.__traceback__ and not list(tmp_path.glob("searchrl-index-*"))


def test_added_passages_extend_the_index(tmp_path: Path) -> None:
    log: list[str] = []
    kind = Lengths(log=log)
    old = build_index(kind, PASSAGES, tmp_path / "i")
    more = [*old.passages, Passage("new", "longer than the others")]
    built = build_index(kind, more, tmp_path / "i", previous=old)
    assert log == ["part 0", "part 4", "part 8", "part 10"]
    assert built.retriever(kind).lengths == [len(p.text) for p in more]


def test_passages_that_another_process_added_are_not_lost(tmp_path: Path) -> None:
    """Two `index add` that begin with the same index: the second one would drop what the first one
    added."""
    old = build_index(Lengths(), PASSAGES, tmp_path / "i")
    build_index(Lengths(), [*PASSAGES, Passage("first", "x")], tmp_path / "i", previous=old)
    with pytest.raises(IndexFault, match="was changed by another process .* same command again"):
        build_index(Lengths(), [*PASSAGES, Passage("second", "y")], tmp_path / "i", previous=old)
    assert open_index(tmp_path / "i").passages.find("first") == 10


def test_files_are_on_the_disk_before_the_manifest_speaks_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.append(os.fstat(file).st_ino)
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    built = build_index(Lengths(), PASSAGES, tmp_path / "i")
    *others, manifest = synced
    assert (tmp_path / "i" / "manifest.json").stat().st_ino == manifest
    assert {path.stat().st_ino for path in built.files.iterdir()} <= set(others)


@pytest.mark.parametrize(
    "change",
    [
        {"data": "../secret"},
        {"data": "/etc"},
        {"data": ""},
        {"files": {"../../passwd": (1, "")}},
        {"files": {"/etc/passwd": (1, "")}},
        {"count": "many"},
        {"settings": []},
        {"settings": {1: 2}, "kind": True},
        {"kind_version": "1"},
        {"fingerprint": None},
        {"sources": "--corpus"},
        {"sources": [1]},
        {"data": 5},
        {"files": {"a": 1}},
        {"files": {"a\0": (1, "")}},
        {"files": {"a": ("1", "")}},
        {"files": {"a": (math.inf, "")}},
        {"versions": 0},
        {"created": []},
        {"took_s": None},
        {"took_s": math.inf},
    ],
)
def test_manifest_of_a_stranger_is_no_traceback_and_leads_nowhere_else(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    """Its checksum is right: whoever makes a folder can compute it."""
    built = build_index(Lengths(), PASSAGES, tmp_path / "i")
    write_manifest(tmp_path / "i", replace(built.manifest, **change))
    with pytest.raises(IndexFault, match=r"is damaged: manifest\.json") as refused:
        open_index(tmp_path / "i", is_deep=True)
    assert "\n" not in str(refused.value) and "searchrl index build" in str(refused.value)


def test_index_that_is_replaced_while_it_is_opened_is_opened_again(tmp_path: Path) -> None:
    old = build_index(Lengths(), PASSAGES, tmp_path / "i")
    build_index(Lengths(), PASSAGES[:4], tmp_path / "i")
    assert old.retriever(Lengths()).passages == open_index(tmp_path / "i").passages
    file = open_index(tmp_path / "i").files / "l.json"
    opened = open_index(tmp_path / "i")
    file.unlink()
    with pytest.raises(IndexFault, match=r"l\.json: it is missing\. Build it again"):
        opened.retriever(Lengths())


def test_passages_of_another_index_are_seen(tmp_path: Path) -> None:
    built = build_index(Lengths(), PASSAGES, tmp_path / "i")
    other = build_index(Lengths(), PASSAGES[::-1], tmp_path / "j")
    shutil.copytree(other.passages.path, built.passages.path, dirs_exist_ok=True)
    with pytest.raises(IndexFault, match=r"its passages are not those .* Build it again: searchrl"):
        open_index(tmp_path / "i")


def test_damaged_index_that_nobody_named_is_to_be_deleted(cache: Path) -> None:
    open_or_build(Lengths(), PASSAGES)
    (folder,) = cache.iterdir()
    (folder / "manifest.json").write_text("")
    with pytest.raises(IndexFault, match=rf"'{folder}' is damaged: .* Delete this folder; the"):
        open_or_build(Lengths(), PASSAGES)
    shutil.rmtree(folder)
    open_or_build(Lengths(), PASSAGES)


def test_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(IndexFault, match="cannot be built: .*/file/cache.* SEARCHRL_INDEXES"):
        open_or_build(Lengths(), PASSAGES)


def test_full_disk_leaves_the_old_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Lengths, passages: PassageStore, work: Work) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(work.folder))

    build_index(Lengths(scale=2), PASSAGES, tmp_path / "i")
    monkeypatch.setattr(Lengths, "build", fail)
    with pytest.raises(IndexFault, match="cannot be built: .*No space left on device"):
        build_index(Lengths(), PASSAGES, tmp_path / "i")
    assert open_index(tmp_path / "i").manifest.settings == {"scale": 2}


TWO_BUILDERS = """
import sys, time
from searchrl.contracts import Passage
from searchrl_retrieval.bm25s import counting
from searchrl_retrieval.bm25s.kind import Bm25s, make_bm25s

Bm25s.keep_from = 1
count = counting.count_parts
def slowly(*args):
    print("building", flush=True)
    time.sleep(1)
    return count(*args)
counting.count_parts = slowly
print(make_bm25s((Passage("a", "otters"),)).search(["otters"], 1)[0][0].id)
"""


def test_processes_that_start_together_build_once(cache: Path) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, "-c", TWO_BUILDERS]
    both = [subprocess.Popen(line, stdout=subprocess.PIPE, env=env) for _ in range(2)]
    said = b"".join(process.communicate()[0] for process in both).split()
    assert sorted(said) == [b"a", b"a", b"building"]
    assert len(list(cache.iterdir())) == 1
