"""Passages on disk: the same as in memory, with a fingerprint of their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searchrl_retrieval.index.passages import (
    PassageStore,
    find_best,
    fingerprint_passages,
    write_passages,
)

from searchrl import DataError
from searchrl.contracts import Passage

PASSAGES = tuple(
    Passage(f"p{i * 7 % 30}", f"Text {i} über 学位法.\n", f"Title {i}" * (i % 3)) for i in range(30)
)


@given(st.lists(st.builds(Passage, st.text(), st.text(), st.text()), unique_by=lambda p: p.id))
@settings(max_examples=30, deadline=None)
def test_any_passages_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, passages: list[Passage]
) -> None:
    path = tmp_path_factory.mktemp("store") / "passages"
    for several in (passages, [*passages, Passage("\ud800", "half of a pair \udfff")]):
        assert write_passages(path, several) == fingerprint_passages(several)
        assert list(PassageStore(path)) == several and len(PassageStore(path)) == len(several)


def test_passages_are_found_by_place_and_by_id_from_several_threads(tmp_path: Path) -> None:
    write_passages(tmp_path / "corpus #1?.sqlite", iter(PASSAGES))
    store = PassageStore(tmp_path / "corpus #1?.sqlite")
    with ThreadPoolExecutor(4) as pool:
        assert tuple(pool.map(store.__getitem__, range(30))) == PASSAGES
        assert list(pool.map(store.find, [p.id for p in PASSAGES])) == list(range(30))
    assert store.find("p") is None and store.find("") is None


def test_the_fingerprint_is_of_ids_titles_texts_and_their_order_and_not_of_scores() -> None:
    plain = [Passage("a", "text", "title"), Passage("b", "more")]
    scored = [Passage(p.id, p.text, p.title, score=3.0) for p in plain]
    assert fingerprint_passages(scored) == fingerprint_passages(plain)
    others = [
        plain[::-1],
        plain[:1],
        [Passage("a", "titletext"), plain[1]],
        [Passage("at", "ext", "title"), plain[1]],
        [Passage("a", "text", "Title"), plain[1]],
    ]
    assert len({fingerprint_passages(one) for one in [plain, *others]}) == 6


def test_two_passages_with_one_id_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the passages 2 and 31 .* the same id 'p7'"):
        write_passages(tmp_path / "corpus", [*PASSAGES, Passage("p7", "again")])
    path = tmp_path / "damaged"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(DataError, match="passages of an index are damaged"):
        PassageStore(path)


def test_the_best_keep_equal_scores_in_the_order_of_the_corpus() -> None:
    scores = np.array([0, 2, 1, 2, 0, 1], dtype=np.float32)
    assert find_best(scores, 3) == [1, 3, 2] and find_best(scores, 9) == [1, 3, 2, 5]
