"""`dense` (FAISS and Chroma) and `rerank` with small models of random weights, saved on disk."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_models import PASSAGES, write_sentence_model, write_transformer

if importlib.util.find_spec("sentence_transformers") is None:
    pytest.skip("needs searchrl-retrieval[dense]", allow_module_level=True)
pytest.importorskip("faiss")

from searchrl_retrieval.dense.kinds import Dense, make_dense
from searchrl_retrieval.dense.prefixes import Prefixes, find_prefixes
from searchrl_retrieval.index.build import build_index
from searchrl_retrieval.index.folder import open_index
from searchrl_retrieval.index.manifest import IndexFault
from searchrl_retrieval.rerank import make_rerank

from searchrl import ConfigError, RetrieverFailure, load_plugins, make_retriever_factory
from searchrl.contracts import Passage


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No part of this may open a connection, to look for a newer model say."""
    monkeypatch.setenv("SEARCHRL_INDEXES", str(tmp_path / "indexes"))
    opened: list[Any] = []

    def refuse(*args: Any, **_: Any) -> None:
        opened.append(args)
        raise OSError("there is no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    assert not opened


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentence_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_transformer(tmp_path_factory.mktemp("models") / "judge", num_labels=1)


def test_dense_finds_what_its_model_says(encoder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    texts = [f"{p.title} {p.text}".strip() for p in PASSAGES]
    model = SentenceTransformer(str(encoder), device="cpu", local_files_only=True)
    rows = model.encode([*texts, "the dog"], normalize_embeddings=True)
    expected = sorted(zip(-(rows[:-1] @ rows[-1]), [p.id for p in PASSAGES], strict=True))
    retriever = make_dense(PASSAGES, model=str(encoder), title_weight=0)
    (found,) = retriever.search(["the dog"], 4)
    assert [p.id for p in found] == [name for _, name in expected[:4]]
    assert [p.score for p in found] == pytest.approx([-s for s, _ in expected[:4]], abs=1e-5)
    queries = ["the dog", " ", "library \ud800", "x" * 5000]
    together = retriever.search(queries, 3)
    assert together[1] == [] and all(together[i] for i in (0, 2, 3))
    for query, one in zip(queries, together, strict=True):
        assert [p.id for p in retriever.search([query], 3)[0]] == [p.id for p in one]


def test_prefixes_are_put_before_texts_and_an_index_keeps_that_of_its_passages(
    encoder: Path, tmp_path: Path
) -> None:
    plain = Dense(model=str(encoder)).load_encoder()
    kind = Dense(model=str(encoder), query_prefix="query ", passage_prefix="passage ")
    prefixed = kind.load_encoder()
    dog = Passage("d", "dog")
    assert prefixed.encode_queries(["dog"]) == pytest.approx(plain.encode_queries(["query dog"]))
    as_passage = prefixed.encode_passages([dog])
    assert as_passage == pytest.approx(plain.encode_queries(["passage dog"]))
    assert as_passage != pytest.approx(plain.encode_passages([dog]))
    built = build_index(Dense(model=str(encoder)), PASSAGES, tmp_path / "index")
    assert built.retriever(Dense(model=str(encoder), query_prefix="query "))
    with pytest.raises(IndexFault, match="was built with passage_prefix='', not 'passage '"):
        built.retriever(Dense(model=str(encoder), passage_prefix="passage "))


@pytest.mark.parametrize(
    ("name", "said", "expected"),
    [
        ("multilingual-e5-small", {}, ("query: ", "passage: ")),
        ("models--intfloat--e5-base-v2/snapshots/0a1b", {}, ("query: ", "passage: ")),
        ("mine", {"_name_or_path": "intfloat/e5-large"}, ("query: ", "passage: ")),
        ("nomic-embed-text-v1.5", {}, ("search_query: ", "search_document: ")),
        ("bge-base-en-v1.5", {}, ("Represent this sentence for searching relevant passages: ", "")),
        ("all-MiniLM-L6-v2", {}, ("", "")),
        ("pie5x", {}, ("", "")),
        ("e5-own", {"prompts": {"query": "Q: ", "document": ""}}, ("Q: ", "passage: ")),
    ],
)
def test_what_a_model_wants_before_its_texts(
    tmp_path: Path, name: str, said: Mapping[str, Any], expected: tuple[str, str]
) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    for file in ("config.json", "config_sentence_transformers.json"):
        (folder / file).write_text(json.dumps(said), "utf-8")
    assert find_prefixes(folder, None, None) == expected
    assert find_prefixes(folder, "", "p ") == Prefixes("", "p ")


def test_models_that_cannot_be_used_give_one_sentence(tmp_path: Path, encoder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        make_dense(PASSAGES, model="intfloat/e5-base-v2")
    assert "`hf download OWNER/NAME --local-dir DIR`" in str(caught.value)
    (tmp_path / "config.json").write_text("{}", "utf-8")
    with pytest.raises(ConfigError, match="cannot be loaded as a SentenceTransformer: "):
        make_dense(PASSAGES, model=str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be loaded as a .* on the device 'abacus'"):
        make_dense(PASSAGES, model=str(encoder), device="abacus")
    with pytest.raises(ConfigError, match=r"needs a cross-encoder: set retriever\.model"):
        make_rerank(PASSAGES)
    two = write_transformer(tmp_path / "two", num_labels=2)
    with pytest.raises(ConfigError, match="gives 2 scores for a pair"):
        make_rerank(PASSAGES, model=str(two))


def test_a_chroma_index_finds_the_same_and_grows(encoder: Path, tmp_path: Path) -> None:
    pytest.importorskip("chromadb")
    import chromadb

    kind = Dense(model=str(encoder), store="chroma")
    old = build_index(kind, PASSAGES[:4], tmp_path / "index")
    index = build_index(kind, PASSAGES, tmp_path / "index", previous=old)
    queries = ["the dog", "", "library", "the river"]
    chosen: dict[str, Any] = {"model": str(encoder), "store": "chroma"}
    retriever = make_dense((), **chosen, index=str(tmp_path / "index"))
    found = retriever.search(queries, 4)
    flat = make_dense(PASSAGES, model=str(encoder)).search(queries, 4)
    assert [[p.id for p in one] for one in found] == [[p.id for p in one] for one in flat]
    # Chroma has written to its folder meanwhile, and the rest is still checked.
    assert open_index(tmp_path / "index", is_deep=True).manifest.count == 6
    # Other programs can read it.
    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(index.files / "chroma"), settings=settings)
    rows = client.get_collection("passages").get(ids=["3"], include=["documents", "metadatas"])
    assert rows["documents"] == ["dog cat"] and rows["metadatas"][0]["id"] == "d"
    with pytest.raises(IndexFault, match="was built with ef_search=128, not 64"):
        make_dense((), **chosen, ef_search=64, index=str(tmp_path / "index"))


def test_rerank_orders_the_first_3k_of_any_retriever(
    judge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers import CrossEncoder

    registry = load_plugins(["searchrl_retrieval"], entry_points=False)
    settings = {"model": str(judge), "retriever": {"name": "bm25s", "title_weight": 1}}
    retriever: Any = make_retriever_factory(registry, "rerank", settings)(PASSAGES)
    first = make_retriever_factory(registry, "bm25s", {"title_weight": 1})(PASSAGES)
    query = "the library at the park opens"
    pool = first.search([query], 3)[0]
    scores = CrossEncoder(str(judge), device="cpu", local_files_only=True).predict(
        [(query, f"{p.title} {p.text}") for p in pool]
    )
    order = sorted(zip(-scores, [p.id for p in pool], strict=True))
    assert len(pool) == 3 and len(set(scores.tolist())) == 3
    (best,) = retriever.search([query], 1)
    assert [(p.id, p.score) for p in best] == [(order[0][1], pytest.approx(-order[0][0]))]
    (three,) = retriever.search([query], 3)
    asked: list[int] = []
    inner, given = retriever.retriever, first.search
    monkeypatch.setattr(inner, "search", lambda q, k: asked.append(k) or given(q, k))
    retriever.search([query], 2)
    assert asked == [6]
    assert [p.score for p in three] == sorted((p.score for p in three), reverse=True)
    queries = [query, "", "dog", "unheard"]
    assert retriever.search(queries, 2) == [retriever.search([one], 2)[0] for one in queries]
    assert retriever.search(queries, 0) == [[], [], [], []]
    scores = np.array([1, math.nan, 0])
    monkeypatch.setattr(retriever, "_model", SimpleNamespace(predict=lambda *_, **__: scores))
    with pytest.raises(RetrieverFailure, match="scores that are no numbers"):
        retriever.search([query], 1)


@pytest.mark.parametrize("kind", ["dense", "rerank"])
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("modules.json", [{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}]),
        ("modules.json", [{"idx": 0, "path": "", "type": "sentence_transformers.util.misc.os"}]),
        ("1_Pooling/router_config.json", {"types": {"a": "evil.Module"}, "structure": {}}),
        ("1_Pooling/config.json", {"types": {"a": "evil.Module"}, "structure": {}}),
    ],
)
def test_a_model_that_names_code_of_others_is_not_loaded(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, file: str,
    content: Any,
) -> None:  # fmt: skip
    """sentence-transformers 5 imported it: a stranger's model ran code."""
    folder = tmp_path / "model"
    shutil.copytree(encoder, folder)
    (folder / file).write_text(json.dumps(content))
    for place in (folder, tmp_path):
        (place / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    make = {"dense": make_dense, "rerank": make_rerank}[kind]
    with suppress(ConfigError):  # or the file is not looked at
        make(PASSAGES, model=str(folder))
    if (kind, file) == ("dense", "modules.json"):
        with pytest.raises(ConfigError, match="cannot be loaded as a SentenceTransformer"):
            make(PASSAGES, model=str(folder))
    assert not (tmp_path / "ran").exists()
