"""BM25: equality with rank-bm25, defined edge cases, stable order, the retrieval pitfalls."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from searchrl.core.episode import Passage
from searchrl.errors import ConfigError
from searchrl.plugins import load_plugins
from searchrl.retrieval.bm25 import BM25Retriever
from searchrl.retrieval.words import tokenize

TOWN = [
    Passage("a", "The library opens at nine and closes at five.", "Library"),
    Passage("b", "Dogs must be kept on a lead in the park.", "Park rules"),
    Passage("c", "The park closes at dusk. The park has two ponds.", "Park hours"),
    Passage("d", "学校图书馆每天八点开放。", "图书馆"),
    Passage("e", "学生应当遵守学校的规章制度。", "校规"),
]


def ids(result: Sequence[Passage]) -> list[str]:
    return [passage.id for passage in result]


def search(query: str, k: int = 3, passages: Sequence[Passage] = TOWN) -> list[str]:
    return ids(BM25Retriever(passages).search([query], k)[0])


words = st.sampled_from("ford loaf eel heron tug slate bell raft".split())
texts = st.lists(words, max_size=12).map(" ".join)


@given(
    st.lists(texts, min_size=1, max_size=12).filter(lambda corpus: any(corpus)),
    texts,
    st.floats(0, 3),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_scores_equal_rank_bm25_bit_for_bit(
    corpus: list[str], query: str, k1: float, b: float, epsilon: float
) -> None:
    passages = [Passage(str(i), text) for i, text in enumerate(corpus)]
    found = BM25Retriever(passages, k1=k1, b=b, epsilon=epsilon).search([query], len(corpus))[0]
    theirs = BM25Okapi([text.split() for text in corpus], k1=k1, b=b, epsilon=epsilon)
    with np.errstate(invalid="ignore"):  # rank-bm25 has 0/0 at k1 = 0 where a word is absent
        expected = theirs.get_scores(query.split())
    sharing = [i for i, text in enumerate(corpus) if set(text.split()) & set(query.split())]
    assert sorted(ids(found)) == sorted(map(str, sharing))
    if k1 > 0:
        assert {p.id: p.score for p in found} == {str(i): expected[i] for i in sharing}
    order = [(-p.score, int(p.id)) for p in found]
    assert order == sorted(order)


def test_titles_are_indexed_and_weigh_more_than_mentions() -> None:
    passages = [
        Passage("mention", "the ferry leaves from the quay beside the tug"),
        Passage("about", "she was built elsewhere and has a strong engine", "Tug"),
        Passage("other", "slate and salt"),
        Passage("more", "bread and eel"),
        Passage("most", "otters and bees"),
    ]
    assert search("tug", passages=passages) == ["about", "mention"]
    plain = BM25Retriever(passages, title_weight=1)
    theirs = BM25Okapi([tokenize(f"{p.title} {p.text}") for p in passages])
    found = plain.search(["tug"], 4)[0]
    assert len(found) == 2
    for passage in found:
        position = [p.id for p in passages].index(passage.id)
        assert passage.score == theirs.get_scores(["tug"])[position]


def test_word_in_half_of_a_tiny_corpus_still_matches_at_score_zero() -> None:
    # IDF is log(1.5/1.5) = 0 here: filtering by "score > 0" would lose the only match.
    pair = [Passage("x", "heron"), Passage("y", "raft")]
    (found,) = BM25Retriever(pair).search(["heron"], 5)
    assert ids(found) == ["x"] and found[0].score == 0.0


TWINS = [Passage(str(i), "heron eel" if i % 2 else "raft bell slate") for i in range(40)]


@pytest.mark.parametrize(
    ("query", "k", "passages", "found"),
    [
        ("图书馆几点开放", 3, TOWN, ["d"]),
        ("规章", 3, TOWN, ["e"]),
        *((query, 3, TOWN, []) for query in ("", "   ", "?!", "zeppelin", "汽车")),
        ("heron", 3, [Passage("x", ""), Passage("y", "heron"), TOWN[0]], ["y"]),
        # A word of most passages still matches.
        ("park", 9, [Passage(str(i), "park bench") for i in range(5)], ["0", "1", "2", "3", "4"]),
        # Equal scores keep the order of the corpus.
        ("heron", 40, TWINS, [str(i) for i in range(1, 40, 2)]),
        ("park closes", 10_000, TOWN, ["c", "b", "a"]),
        ("park", -1, TOWN, []),
    ],
)
def test_what_is_found(query: str, k: int, passages: list[Passage], found: list[str]) -> None:
    assert search(query, k, passages) == found


@pytest.mark.parametrize("passages", [[], [Passage("x", "")], [Passage("x", "…", "?!")]])
def test_empty_corpus_and_wordless_corpus_find_nothing(passages: list[Passage]) -> None:
    assert BM25Retriever(passages).search(["anything", ""], 3) == [[], []]


def test_repeated_query_words_weigh_twice_as_in_rank_bm25() -> None:
    once, twice = BM25Retriever(TOWN).search(["library", "library library"], 1)
    assert twice[0].score == pytest.approx(2 * once[0].score)


@pytest.mark.parametrize(
    "settings",
    [{"k1": -0.1}, {"epsilon": -1.0}, {"b": 1.5}, {"b": float("nan")}, {"title_weight": -1}],
)
def test_parameters_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"'bm25'.*{next(iter(settings))}"):
        load_plugins().get("retriever", "bm25").make(TOWN, **settings)


@given(st.text(alphabet="parklibdogs 图学", max_size=12), st.integers(1, 5))
def test_ranks_are_those_of_the_search_and_go_on_behind_it(query: str, k: int) -> None:
    retriever = BM25Retriever(TOWN)
    found = ids(retriever.search([query], len(TOWN))[0])
    (ranks,) = retriever.ranks([query], [passage.id for passage in TOWN] + ["unknown"])
    assert [name for name, rank in ranks.items() if rank is None] == [
        name for name in (*"abcde", "unknown") if name not in found
    ]
    assert all(ranks[name] == place for place, name in enumerate(found, 1))
    assert [ranks[p.id] for p in retriever.search([query], k)[0]] == list(
        range(1, min(k, len(found)) + 1)
    )
