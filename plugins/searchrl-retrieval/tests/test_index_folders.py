"""Index folders: built, opened, shared, refused, and taken up again after a kill."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from filelock import FileLock
from searchrl_retrieval.index.build import CACHE_VARIABLE, LOCK, build_index
from searchrl_retrieval.index.folder import PASSAGES as STORE
from searchrl_retrieval.index.folder import Index, open_index
from searchrl_retrieval.index.manifest import IndexFault, write_manifest
from searchrl_retrieval.index.passages import PassageStore
from searchrl_retrieval.index.places import IndexFactory

from searchrl import Manifest
from searchrl.contracts import Passage

PASSAGES = [Passage(f"p{i}", f"text of passage {i}", f"title {i}") for i in range(10)]

LOG: list[str] = []
"""Steps that computed or opened."""


@dataclass(frozen=True)
class Lengths:
    """A kind for tests: it stores the length of every text, one after another."""

    scale: int = 1
    dies_at: int = -1

    name: ClassVar[str] = "lengths"
    keep_from: ClassVar[int] = 5

    @property
    def built_with(self) -> Mapping[str, Any]:
        return {"scale": self.scale}

    def build(self, passages: PassageStore, folder: Path, previous: Index | None) -> None:
        if previous:
            shutil.copytree(previous.files, folder, dirs_exist_ok=True)
        with (folder / "l.txt").open("a+") as file:
            file.seek(0)
            for at in range(len(file.readlines()), len(passages)):
                if at == self.dies_at:
                    raise KeyboardInterrupt
                LOG.append(f"{at}")
                file.write(f"{len(passages[at].text) * self.scale}\n")

    def open(self, folder: Path, passages: PassageStore) -> Any:
        LOG.append("open")
        return Opened([int(line) for line in (folder / "l.txt").open()], passages)


class Opened:
    def __init__(self, lengths: list[int], passages: PassageStore) -> None:
        self.lengths = lengths
        self.passages = passages

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [[*self.passages][:k] for _ in queries]


make_lengths = IndexFactory(Lengths)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    LOG.clear()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_index_is_built_and_opened(tmp_path: Path) -> None:
    built = build_index(Lengths(), iter(PASSAGES), tmp_path / "i", sources=["--corpus", "/c.jsonl"])
    assert list(built.passages) == PASSAGES
    opened: Any = open_index(tmp_path / "i", is_deep=True)
    assert opened.retriever(Lengths()).lengths == [len(p.text) for p in PASSAGES]
    names = {".lock", opened.manifest.data, "manifest.json"}
    assert {path.name for path in (tmp_path / "i").iterdir()} == names


def test_a_killed_build_goes_on_where_it_was_and_leaves_the_old_index(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    build_index(Lengths(scale=2), PASSAGES, folder)
    LOG.clear()
    with pytest.raises(KeyboardInterrupt):
        build_index(Lengths(dies_at=8), PASSAGES, folder)
    old: Any = open_index(folder).retriever(Lengths(scale=2))
    assert old.lengths[0] == 2 * len(PASSAGES[0].text)
    built: Any = build_index(Lengths(), PASSAGES, folder).retriever(Lengths())
    assert [*"01234567", "open", "8", "9", "open"] == LOG
    assert built.lengths == [len(p.text) for p in PASSAGES]


def test_what_a_killed_build_left_is_not_used_for_another_corpus(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_index(Lengths(dies_at=8), PASSAGES, tmp_path / "i")
    with pytest.raises(IndexFault, match=r"is not finished: .* The same command goes on"):
        open_index(tmp_path / "i")
    LOG.clear()
    build_index(Lengths(), [*PASSAGES[::-1]], tmp_path / "i")
    assert [*"0123456789"] == LOG


@pytest.fixture
def built(tmp_path: Path) -> Index:
    return build_index(Lengths(), PASSAGES, tmp_path / "i")


@pytest.mark.parametrize(
    ("name", "change", "is_deep", "said"),
    [
        ("index/l.txt", lambda data: data.replace(b"1", b"2", 1), True, "content is not what was"),
        ("index/l.txt", lambda data: data[:-1], False, "it has .* bytes and was"),
        ("index/l.txt", None, False, "it is missing"),
        (STORE, lambda data: data[:-1], False, "it has .* bytes and was"),
        ("../manifest.json", lambda data: b"", False, "it is empty"),
        ("../manifest.json", lambda data: b"{}", False, "it has no checksum"),
        ("../manifest.json", lambda data: data.replace(b'"scale": 1', b'"scale": 2'), False,
         "content is not what was"),
    ],
)  # fmt: skip
def test_damage_is_refused_with_the_command_that_builds_it_again(
    built: Index, name: str, change: Any, is_deep: bool, said: str
) -> None:
    path = built.files.parent / name
    path.unlink() if change is None else path.write_bytes(change(path.read_bytes()))
    with pytest.raises(IndexFault, match=rf"is damaged: .*{said}.*Build it again: se"):
        open_index(built.folder, is_deep=is_deep)


def test_an_index_of_another_format_is_outdated(built: Index) -> None:
    Manifest({"format": 2}, {}).write(built.folder / "manifest.json")
    with pytest.raises(IndexFault, match=r"outdated: it is in format 2.*Build it again: searchrl"):
        open_index(built.folder)


@pytest.mark.parametrize(
    "change",
    [{"data": "../secret"}, {"data": "/etc"}, {"data": 5}, {"count": "many"}, {"settings": []},
     {"kind": True}, {"fingerprint": None}, {"sources": "--corpus"}, {"files": {"a": 1}},
     {"files": {"a": ("1", "")}}, {"created": []}, {"took_s": None}],
)  # fmt: skip
def test_a_manifest_of_a_stranger_is_no_traceback(built: Index, change: dict[str, Any]) -> None:
    """Its checksum is right: whoever makes a folder can compute it."""
    write_manifest(built.folder, replace(built.manifest, **change))
    with pytest.raises(IndexFault, match=r"manifest\.json' is damaged: ") as refused:
        open_index(built.folder, is_deep=True)
    assert "\n" not in str(refused.value) and "searchrl index build" in str(refused.value)


def test_an_index_of_another_corpus_or_settings_is_refused(tmp_path: Path) -> None:
    index = str(tmp_path / "handbook")
    build_index(Lengths(), PASSAGES, tmp_path / "handbook", sources=["--corpus", "/c.jsonl"])
    command = f"searchrl index build --corpus /c.jsonl --retriever lengths --out {index} --set "
    with pytest.raises(IndexFault, match=r"outdated: the corpus has changed .*10 .* then, 9 now"):
        make_lengths(PASSAGES[1:], index=index)
    with pytest.raises(IndexFault, match=rf"scale=1, not 3\. .*{command}retriever.scale=3"):
        make_lengths(PASSAGES, index=index, scale=3)
    with pytest.raises(IndexFault, match=r"no index: .*/handbok' is not there.* mean .*/handbook"):
        make_lengths(PASSAGES, index=f"{tmp_path}/handbok")


def test_a_folder_of_others_or_of_another_process_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    lock = FileLock(tmp_path / "i" / LOCK)
    with lock, pytest.raises(IndexFault, match="is being built by another process"):
        build_index(Lengths(), PASSAGES, tmp_path / "i")
    (tmp_path / "i" / "thesis.tex").write_text("x")
    with pytest.raises(IndexFault, match="thesis.tex"):
        build_index(Lengths(), PASSAGES, tmp_path / "i")
    assert (tmp_path / "i" / "thesis.tex").exists()


def test_an_index_that_nobody_named_is_kept_and_found_again(cache: Path) -> None:
    make_lengths(PASSAGES)
    (folder,) = cache.iterdir()
    make_lengths(tuple(PASSAGES), dies_at=0)
    assert [*"0123456789", "open", "open"] == LOG
    make_lengths(PASSAGES, scale=2)
    make_lengths(PASSAGES[1:])
    assert len(list(cache.iterdir())) == 3
    (folder / "manifest.json").write_text("")
    with pytest.raises(
        IndexFault, match=rf"'{folder}/manifest.json' is damaged: .* Delete this folder; the"
    ):
        make_lengths(PASSAGES)


def test_a_small_corpus_leaves_nothing_behind(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    retriever: Any = make_lengths(PASSAGES[:4])
    assert list(tmp_path.glob("searchrl-index-*")) and not cache.exists()
    assert retriever.search(["x"], 1) == [[PASSAGES[0]]]
    del retriever
    with pytest.raises(KeyboardInterrupt) as raised:  # it holds every frame of the build
        make_lengths(PASSAGES[:4], dies_at=0)
    assert raised.value.__traceback__ and not list(tmp_path.glob("searchrl-index-*"))


def test_added_passages_extend_the_index_and_none_is_lost(built: Index) -> None:
    """If two `index add` begin with one index, the second would drop passages of the first."""
    more = [*PASSAGES, Passage("first", "longer than the others")]
    grown: Any = build_index(Lengths(), more, built.folder, previous=built).retriever(Lengths())
    assert LOG[10:] == ["10", "open"] and grown.lengths == [len(p.text) for p in more]
    with pytest.raises(IndexFault, match="was changed by another process .* same command again"):
        build_index(Lengths(), [*PASSAGES, Passage("second", "y")], built.folder, previous=built)
    assert open_index(built.folder).passages.find("first") == 10
