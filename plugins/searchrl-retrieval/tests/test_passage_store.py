"""Passages on disk: the same as in memory, shared by fingerprint, and refused when damaged."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searchrl_retrieval.index.passages import (
    PassageStore,
    decode_record,
    encode_record,
    fingerprint_passages,
    has_passages,
    open_passages,
    write_passages,
)

from searchrl import DataError
from searchrl.contracts import Passage

PASSAGES = tuple(
    Passage(f"p{i * 7 % 30}", f"Text {i} über 学位法.\n", f"Title {i}" * (i % 3)) for i in range(30)
)


@pytest.fixture
def store(tmp_path: Path) -> PassageStore:
    return write_passages(tmp_path / "corpus", iter(PASSAGES))


@given(st.text(), st.text(), st.text())
def test_any_passage_comes_back_as_it_was(identity: str, title: str, text: str) -> None:
    passage = Passage(identity, text, title)
    assert decode_record(encode_record(passage)) == passage


def test_half_of_a_surrogate_pair_comes_back() -> None:
    passage = Passage("\ud800", "a\udfffb")
    assert decode_record(encode_record(passage)) == passage


def test_a_store_is_the_sequence_that_was_written(store: PassageStore) -> None:
    assert len(store) == 30 and list(store) == list(PASSAGES)
    assert store[4] == PASSAGES[4] and store[-1] == PASSAGES[-1]
    assert store[5:9] == list(PASSAGES[5:9]) and store[::-10] == list(PASSAGES[::-10])
    assert PASSAGES[3] in store and Passage("p0", "other") not in store and "p0" not in store
    for place in (30, -31):
        with pytest.raises(IndexError, match=f"no passage {place} among 30"):
            store[place]


def test_passages_are_found_by_their_ids(store: PassageStore) -> None:
    assert [store.find(passage.id) for passage in PASSAGES] == list(range(30))
    assert [store.id_at(place) for place in range(30)] == [p.id for p in PASSAGES]
    assert store.find("p") is None and store.find("") is None and store.find("zzz") is None


def test_the_score_of_a_result_is_no_part_of_a_passage(store: PassageStore) -> None:
    scored = [Passage(p.id, p.text, p.title, score=3.0) for p in PASSAGES]
    assert fingerprint_passages(scored) == store.fingerprint == fingerprint_passages(store)


def test_fingerprint_changes_with_every_part_and_with_the_order() -> None:
    plain = [Passage("a", "text", "title"), Passage("b", "more")]
    others = [
        plain[::-1],
        plain[:1],
        [Passage("a", "titletext"), plain[1]],
        [Passage("at", "ext", "title"), plain[1]],
        [Passage("a", "text", "Title"), plain[1]],
    ]
    marks = {fingerprint_passages(one) for one in [plain, *others]}
    assert len(marks) == 6


def test_another_process_gets_the_folder_and_not_the_passages(store: PassageStore) -> None:
    sent = pickle.dumps(store)
    assert len(sent) < 500
    again = pickle.loads(sent)
    assert again == store and hash(again) == hash(store) and list(again) == list(PASSAGES)
    assert store != list(PASSAGES)


def test_corpus_without_passages(tmp_path: Path) -> None:
    store = write_passages(tmp_path / "corpus", [])
    assert len(store) == 0 and list(store) == [] and store.find("a") is None
    assert open_passages(store.path) == store and store.num_bytes == 0


def test_two_passages_with_one_id_are_refused_with_their_places(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the passages 2 and 31 .* the same id 'p7'"):
        write_passages(tmp_path / "corpus", [*PASSAGES, Passage("p7", "again")])
    assert not has_passages(tmp_path / "corpus")


def test_corpus_that_was_not_finished_is_none(tmp_path: Path) -> None:
    def broken() -> Iterator[Passage]:
        yield PASSAGES[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_passages(tmp_path / "corpus", broken())
    assert not has_passages(tmp_path / "corpus")
    with pytest.raises(DataError, match=r"holds no complete corpus: .*passages.json' is missing"):
        open_passages(tmp_path / "corpus")


@pytest.mark.parametrize("name", ["records.bin", "offsets.bin", "ids.bin"])
def test_cut_file_is_refused(store: PassageStore, name: str) -> None:
    path = store.path / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"{name}' has .* and should have .* it is damaged"):
        open_passages(store.path)


def test_facts_that_cannot_be_read_or_are_of_another_format_are_refused(
    store: PassageStore,
) -> None:
    path = store.path / "passages.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"format": 2}))
    with pytest.raises(DataError, match="in format 2 .* reads 1"):
        open_passages(store.path)
    for damaged in ("{", json.dumps(facts | {"count": math.inf}), "[" * 3000):
        path.write_text(damaged)
        with pytest.raises(DataError, match="passages.json' is damaged"):
            open_passages(store.path)
