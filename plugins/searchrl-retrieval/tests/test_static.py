"""`static` and the FAISS files below it: what is found, kept, extended, refused; without torch."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import PASSAGES, write_static

pytest.importorskip("faiss")
pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")

from searchrl_retrieval.dense import kinds
from searchrl_retrieval.dense.encoders import normalise
from searchrl_retrieval.dense.kinds import Static, encode_block, make_static
from searchrl_retrieval.dense.models import fingerprint_model
from searchrl_retrieval.dense.static import StaticEncoder, load_static_encoder
from searchrl_retrieval.dense.vectors import FaissVectors, write_faiss
from searchrl_retrieval.index.build import build_index
from searchrl_retrieval.index.manifest import IndexFault

from searchrl import ConfigError, load_plugins, make_retriever_factory
from searchrl.contracts import Passage


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_static(tmp_path_factory.mktemp("static") / "tiny")


def test_vectors_are_the_mean_of_the_tokens(model: Path) -> None:
    encoder = load_static_encoder(model)
    matrix = encoder.matrix_VD
    number = encoder.tokenizer.get_vocab()
    mean = (matrix[number["park"]] + matrix[number["park"]] + matrix[number["dog"]]) / 3
    (row,) = encoder.encode_queries(["park park dog"])
    np.testing.assert_allclose(row, mean / np.linalg.norm(mean), atol=1e-6)
    assert not encoder.encode_queries(["", "?!", "unheard of \ud800"]).any()


def test_the_title_counts_by_its_weight(model: Path) -> None:
    encoder = load_static_encoder(model)
    whole = encoder.encode_passages([Passage("x", "dog cat", "park")])[0]
    title = encoder.encode_queries(["park"])[0]
    untitled = Passage("y", "dog cat")
    rows = encode_block([Passage("x", "dog cat", "park"), untitled], encoder, 0.5)
    mixed = whole + 0.5 * title
    np.testing.assert_allclose(rows[0], mixed / np.linalg.norm(mixed), atol=1e-6)
    np.testing.assert_allclose(rows[1], encoder.encode_passages([untitled])[0])


@pytest.mark.parametrize("store", ["flat", "hnsw", "chroma"])
def test_what_is_found(model: Path, store: Any) -> None:
    if store == "chroma":
        pytest.importorskip("chromadb")
    retriever = make_static(PASSAGES, model=str(model), store=store)

    def search(query: str, k: int = 9) -> list[str]:
        return [passage.id for passage in retriever.search([query], k)[0]]

    assert search("dog")[0] == "d" and search("river bridge", 1) == ["r"]
    assert sorted(search("park", 99)) == sorted(p.id for p in PASSAGES)
    assert [search(nothing) for nothing in ("", " \n", "…", "unknown words")] == [[]] * 4
    assert search("park", 0) == []


def test_any_corpus_and_any_batch(model: Path) -> None:
    assert make_static((), model=str(model)).search(["park"], 3) == [[]]
    same = [Passage(str(number), "park") for number in range(20)]
    retriever = make_static(same, model=str(model))
    assert [p.id for p in retriever.search(["park"], 5)[0]] == ["0", "1", "2", "3", "4"]
    assert retriever.search([], 3) == []
    queries = ["dog", "", "the park at nine", "library"] * 9
    mixed = make_static(PASSAGES, model=str(model))
    assert mixed.search(queries, 3) == [mixed.search([query], 3)[0] for query in queries]
    scores = [passage.score for passage in mixed.search(["library"], 6)[0]]
    assert scores == sorted(scores, reverse=True) and scores[0] <= 1


@pytest.mark.parametrize(("layout", "share"), [("flat", 1.0), ("hnsw", 0.95), ("pq", 0.3)])
def test_every_layout_finds_most_of_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Any, share: float
) -> None:
    monkeypatch.setattr("searchrl_retrieval.dense.vectors.MIN_TO_TRAIN", 500)
    rows = normalise(np.random.default_rng(1).standard_normal((1_000, 16)).astype(np.float32))
    path = tmp_path / "vectors.faiss"
    write_faiss(path, rows, layout, 4, None)
    vectors = FaissVectors(path, 128, 64)
    assert len(vectors) == len(rows)
    found = vectors.search(rows[:50], 10)
    assert (found.places[:, 0] == np.arange(50)).mean() >= share
    exact = np.argsort(-(rows[:50] @ rows.T), axis=1)[:, :10]
    pairs = zip(found.places.tolist(), exact.tolist(), strict=True)
    assert np.mean([len({*a} & {*b}) for a, b in pairs]) / 10 >= share
    if layout == "pq":  # 4 bytes in place of 64, 8 for the place of each, and the codes
        assert path.stat().st_size < rows.nbytes * 0.6
    more = tmp_path / "more.faiss"
    write_faiss(more, rows[:3], layout, 4, path)
    assert len(FaissVectors(more, 128, 64)) == len(rows) + 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"store": "pq"}, "learns from at least 9,984 passages, and the corpus has 6. Use store=f"),
        ({"store": "hsnw"}, "'static': cannot use store = 'hsnw'"),
        ({"title_weight": -1}, "'static': cannot use title_weight = -1"),
        ({"title_weight": math.inf}, "'static': cannot use title_weight = "),
        ({"ef_search": 0}, "'static': cannot use ef_search = 0"),
        ({"model_sha256": "00"}, "has the fingerprint [0-9a-f]{64}, not model_sha256=00"),
    ],
)
def test_wrong_settings(model: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_retriever_factory(
            load_plugins(["searchrl_retrieval"]), "static", {"model": str(model)} | settings
        )(PASSAGES)


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(ConfigError, match=f"the folder '{tmp_path}' holds no model for it"):
        make_static(PASSAGES, model=str(tmp_path))
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(model / "model.safetensors", alone)
    with pytest.raises(ConfigError, match=r"tokenizer\.json.* Copy the whole folder"):
        make_static(PASSAGES, model=str(alone))
    (alone / "model.safetensors").write_bytes(b"no weights")
    shutil.copy(model / "tokenizer.json", alone)
    with pytest.raises(ConfigError, match="is no static-embedding model: "):
        make_static(PASSAGES, model=str(alone))


def test_an_index_is_of_one_model_wherever_that_is(model: Path, tmp_path: Path) -> None:
    index = build_index(Static(model=str(model)), PASSAGES, tmp_path / "index")
    moved = Path(shutil.copytree(model, tmp_path / "moved"))
    (moved / "README.md").write_text("read me", "utf-8")
    assert fingerprint_model(moved) == fingerprint_model(model)
    found = index.retriever(Static(model=str(moved))).search(["dog"], 1)
    assert found[0][0].id == "d"
    other = write_static(tmp_path / "other", seed=1)
    with pytest.raises(IndexFault, match="was built with model_sha256='"):
        index.retriever(Static(model=str(other)))
    with pytest.raises(IndexFault, match="was built with title_weight="):
        index.retriever(Static(model=str(model), title_weight=3))
    assert index.retriever(Static(model=str(model), ef_search=7))


def test_a_build_goes_on_and_an_index_grows(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passages that were embedded are not embedded again: after a kill, or when some are added."""
    monkeypatch.setattr(kinds, "_BATCH", 2)
    kind, encoded = Static(model=str(model)), []
    encode = StaticEncoder.encode_passages

    def counted(self: StaticEncoder, passages: Sequence[Passage]) -> Any:
        is_of_titles = passages[0] not in PASSAGES
        encoded.extend(p.id for p in passages if not is_of_titles)
        if encoded == ["p", "l", "b", "d"]:
            raise KeyboardInterrupt
        return encode(self, passages)

    monkeypatch.setattr(StaticEncoder, "encode_passages", counted)
    with pytest.raises(KeyboardInterrupt):
        build_index(kind, PASSAGES[:5], tmp_path / "index")
    assert encoded == ["p", "l", "b", "d"]
    index = build_index(kind, PASSAGES[:5], tmp_path / "index")
    assert encoded[4:] == ["b", "d", "empty"], "the first part was finished"
    grown = build_index(kind, PASSAGES, tmp_path / "grown", previous=index)
    assert encoded[7:] == ["r"]
    anew = build_index(kind, PASSAGES, tmp_path / "anew")
    queries = ["river", "dog", "library at nine"]
    expected = anew.retriever(kind).search(queries, 6)
    assert grown.retriever(kind).search(queries, 6) == expected
    assert [found[0].id for found in expected] == ["r", "d", "l"]
