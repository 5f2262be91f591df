"""Index terms: scripts, normalisation, and what must not vanish or fall apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchrl.retrieval.words import tokenize


def test_words_are_lower_cased_and_split_at_punctuation() -> None:
    assert tokenize("Don't_stop, U.S. 3.5%!") == ["don", "t", "stop", "u", "s", "3", "5"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("学位法", ["学位", "位法"]),
        ("法", ["法"]),
        ("第3条", ["第", "3", "条"]),
        ("学位，授予", ["学位", "授予"]),
        ("GRPO算法 v2", ["grpo", "算法", "v2"]),
        ("とうきょう", ["とう", "うき", "きょ", "ょう"]),
        ("데이터는", ["데이", "이터", "터는"]),
    ],
)
def test_ascii_only_tokens_find_nothing_in_chinese(text: str, terms: list[str]) -> None:
    assert tokenize(text) == terms


def test_composed_decomposed_and_full_width_forms_are_one_term() -> None:
    assert tokenize("cafe\u0301") == tokenize("café") == ["café"]
    assert tokenize("ＡＢ１２") == ["ab12"]


@given(st.text())
def test_tokenize_is_total_and_ignores_case(text: str) -> None:
    terms = tokenize(text)
    assert all(terms) and tokenize(" ".join(terms)) is not None


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_the_ascii_path_agrees_with_the_general_one(text: str) -> None:
    assert tokenize(text + " é") == [*tokenize(text), "é"]
