"""Retrievers made of retrievers: a setting names another one, with settings of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchrl.core.episode import Passage
from searchrl.errors import ConfigError, UnknownNameError
from searchrl.plugins import load_plugins
from searchrl.plugins.parts import make_retriever_factory

PASSAGES = (Passage("a", "park bench", "one"), Passage("b", "the park", "two"))

FILE = """
from __future__ import annotations

from searchrl import hookimpl
from searchrl.contracts import RetrieverFactory
from searchrl.retrieval.bm25 import BM25Retriever

class Reversed:
    '''What another retriever finds, worst first, with scores of its own.'''

    def __init__(self, passages, *, inner: RetrieverFactory | None = None, depth: int = 10):
        self.inner = (inner or BM25Retriever)(passages)
        self.depth = depth

    def search(self, queries, k):
        from dataclasses import replace
        found = self.inner.search(queries, self.depth if k > 0 else 0)
        return [[replace(p, score=-float(i)) for i, p in enumerate(one[::-1])][:k] for one in found]

@hookimpl
def register_retrievers(register):
    register("reversed", Reversed, concurrent=False)
    register("reversed-many", Reversed)
"""


@pytest.fixture
def own_file(tmp_path: Path) -> str:
    path = tmp_path / "turned.py"
    path.write_text(FILE, "utf-8")
    return str(path)


def search(own_file: str, **settings: Any) -> list[str]:
    factory = make_retriever_factory(load_plugins([own_file]), "reversed", settings)
    (found,) = factory(PASSAGES).search(["park bench"], 5)
    return [passage.id for passage in found]


@pytest.mark.parametrize(
    ("inner", "found"),
    [
        (None, ["b", "a"]),
        ("bm25", ["b", "a"]),
        ({"name": "bm25", "b": 0.5}, ["b", "a"]),
        ("empty", []),
        ({"name": "reversed", "inner": "bm25"}, ["a", "b"]),
    ],
)
def test_a_setting_names_a_retriever(own_file: str, inner: object, found: list[str]) -> None:
    assert search(own_file, inner=inner) == found


@pytest.mark.parametrize(
    ("inner", "error", "said"),
    [
        ("bm52", UnknownNameError, "unknown retriever 'bm52'. Did you mean 'bm25'"),
        ({"name": "bm25", "k1": -1}, ConfigError, "retriever 'bm25': cannot use k1 = -1"),
        ({"name": "bm25", "k2": 1}, ConfigError, "retriever 'bm25' has no setting 'k2'"),
        ({"k1": 1}, ConfigError, r"retriever 'reversed': cannot use inner = {'k1': 1}: expected"),
        (3, ConfigError, "retriever 'reversed': cannot use inner = 3: expected the name of a"),
    ],
)
def test_a_wrong_part_is_refused_before_anything_is_built(
    own_file: str, inner: object, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        make_retriever_factory(load_plugins([own_file]), "reversed", {"inner": inner})


def test_one_that_takes_many_calls_takes_one_at_a_time_with_such_a_part(own_file: str) -> None:
    registry = load_plugins([own_file])
    for inner, is_concurrent in (("bm25", False), ("empty", True)):
        made = make_retriever_factory(registry, "reversed-many", {"inner": inner})
        assert made.is_concurrent == is_concurrent
