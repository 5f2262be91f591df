"""`bm25s`: scores of the library, words of the core, and an order that does not change."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bm25s import BM25
from searchrl_retrieval.bm25s.kind import Bm25s, make_bm25s
from searchrl_retrieval.bm25s.words import Analyzer
from searchrl_retrieval.index.build import build_index
from searchrl_retrieval.index.passages import PassageStore

from searchrl import ConfigError, make_env
from searchrl.contracts import Passage, StoredRetriever

PASSAGES = [
    Passage("otter", "The otters were swimming in the rivers of Elm Hall.", "Otters"),
    Passage("hall", "Elm Hall closes at 16:45. It is a hall.", "Elm Hall"),
    Passage("law", "第三条 学位授予单位应当制定学位授予办法。", "学位法"),
    Passage("novel", "A novel by Stephen King about a clown.", "It"),
    Passage("river", "The river is long and the rivers meet.", "River"),
    Passage("empty", "", ""),
]


def ids(found: list[list[Passage]]) -> list[list[str]]:
    return [[passage.id for passage in one] for one in found]


def test_scores_are_those_of_the_library_times_the_weights() -> None:
    retriever: Any = make_bm25s(PASSAGES, title_weight=2, k1=0.9, b=0.4)
    analyzer = Analyzer("english")
    documents = [analyzer.terms(p.title) * 2 + analyzer.terms(p.text) for p in PASSAGES]
    library = BM25(k1=0.9, b=0.4, method="lucene")
    library.index(documents, show_progress=False)
    otter, hall = (library.get_scores([term]) for term in ("otter", "hall"))
    np.testing.assert_allclose(retriever.score({"otter": 1}), otter, rtol=1e-6)
    weighted = retriever.score({"otter": 0.5, "hall": 3, "unknown": 7})
    np.testing.assert_allclose(weighted, 0.5 * otter + 3 * hall, rtol=1e-6)
    (found,) = retriever.search(["hall otters hall"], 1)
    assert found[0].score == pytest.approx(max(otter + 2 * hall))


def test_a_score_by_hand_with_the_settings_that_hold_if_nobody_says() -> None:
    """Lengths are 2 + 6 * 1 = 8 and 4, their mean 6; "fish" is in the first text 1 + 6 times."""
    passages = [Passage("a", "otter fish", "fish"), Passage("b", "fish heron heron mole")]
    found = make_bm25s(passages).search(["fish"], 2)[0]
    idf = math.log(1 + (2 - 2 + 0.5) / (2 + 0.5))
    by_hand = [
        idf * tf / (tf + 1.2 * (1 - 0.75 + 0.75 * length / 6)) for tf, length in ((7, 8), (1, 4))
    ]
    assert [(p.id, p.score) for p in found] == [
        (name, pytest.approx(score)) for name, score in zip("ab", by_hand, strict=True)
    ]


@pytest.mark.parametrize(
    ("language", "queries", "found"),
    [
        (
            "english",
            ["an otter swims", "the of and", "rivers"],
            [["otter"], [], ["river", "otter"]],
        ),
        ("english", ["it", "zebra", ""], [["novel"], [], []]),
        ("english", ["学位授予", "学"], [["law"], []]),  # pairs of characters
        ("none", ["otter", "otters", "the"], [[], ["otter"], ["river", "otter"]]),
    ],
)
def test_words_are_those_of_a_language_without_stop_words_unless_a_text_has_no_others(
    language: str, queries: list[str], found: list[list[str]]
) -> None:
    retriever = make_bm25s(PASSAGES, language=language)
    assert ids(retriever.search(queries, 2)) == found
    assert retriever.search(queries, 0) == retriever.search(queries, -1) == [[] for _ in queries]


def test_numbers_of_one_digit_are_no_words_of_a_list() -> None:
    terms = Analyzer("none").terms
    assert terms("at 3, 17, 4, 120, 9; 第１、２、３、４、５条") == ["at", "17", "120", "第", "条"]
    assert [*terms("v1.2.3.4 on 5 5"), *terms("1 2 3 4 5")] == ["v1", *"234", "on", *"5512345"]


def test_equal_scores_keep_the_order_of_the_corpus_whatever_the_ids() -> None:
    texts = ["same words here"] * 50 + ["same words here and there"] * 50
    names = [f"{i * 37 % 100:03}" for i in range(100)]
    plain = make_bm25s([Passage(f"{i:03}", text) for i, text in enumerate(texts)])
    permuted = make_bm25s([Passage(n, text) for n, text in zip(names, texts, strict=True)])
    first, second = (r.search(["same words"], 60)[0] for r in (plain, permuted))
    assert [int(p.id) for p in first] == list(range(60))
    assert [p.id for p in second] == names[:60]


def test_ranks_are_those_of_a_search() -> None:
    retriever = make_bm25s([*PASSAGES, Passage("twin", PASSAGES[1].text, PASSAGES[1].title)])
    found = retriever.search(["elm hall river"], 9)[0]
    wanted = {passage.id: rank for rank, passage in enumerate(found, 1)}
    assert len(wanted) == 4
    asked = [*wanted, "law", "nobody"]
    ranks = retriever.ranks(["elm hall river", "zebra"], asked)  # type: ignore[attr-defined]
    assert ranks == [wanted | {"law": None, "nobody": None}, dict.fromkeys(asked)]


@pytest.mark.parametrize("passages", [[], [Passage("a", "")], [Passage("a", "…", "?!")]])
def test_corpus_without_words_finds_nothing(passages: list[Passage]) -> None:
    assert make_bm25s(passages).search(["a", ""], 3) == [[], []]


def test_an_index_is_searched_without_its_corpus_mapped_and_not_read(tmp_path: Path) -> None:
    build_index(Bm25s(), PASSAGES, tmp_path / "i")
    retriever: Any = make_bm25s((), index=str(tmp_path / "i"))
    assert isinstance(retriever, StoredRetriever)
    assert ids(retriever.search(["otters"], 1)) == [["otter"]]
    assert retriever.stored(["law", "nobody"]) == [PASSAGES[2], None]
    for array in (retriever._data, retriever._indices, retriever._starts):
        assert not array.flags.owndata and isinstance(array.base, np.memmap)
    assert isinstance(retriever.passages, PassageStore)


def test_neither_corpus_nor_index_is_said_before_an_episode(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "Who swims?", "answer": "otters"}\n')
    with pytest.raises(ConfigError, match="nothing to search: name an index with --set retriever"):
        given = {"retriever": "bm25s", "questions": str(questions)}
        make_env("corpus", plugins=["searchrl_retrieval"], **given)
