"""Answer scoring: the golden tables, the invariants between the scores, the known pitfalls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchrl.rewards.answers import (
    cover_em,
    em,
    f1,
    fuzzy,
    normalize_n1,
    normalize_n2,
    shared_words,
    tokenize,
)

GOLDEN = {
    # input: (N1, N2)
    "U.S.A.": ("usa", "u s"),
    "1,000": ("1000", "1 000"),
    "rock-n-roll": ("rocknroll", "rock n roll"),
    "3.5%": ("35", "3 5"),
    "don't": ("dont", "don t"),
    "C++": ("c", "c"),
    "snake_case": ("snakecase", "snake case"),
    "theatre the": ("theatre", "theatre"),
    "the": ("", ""),
    "New\u00a0York": ("new york", "new york"),
    "  An  Apple\tand a\nPear ": ("apple and pear", "apple and pear"),
    "": ("", ""),
}

WORDS = st.lists(
    st.sampled_from(
        ["the", "a", "U.S.", "us", "music", "Paris", "13", "not", "yes", "no", "日", ""]
    ),
    max_size=5,
).map(" ".join)
TEXTS = st.one_of(st.text(max_size=30), WORDS)


@pytest.mark.parametrize("text", GOLDEN)
def test_normalisation_golden_table(text: str) -> None:
    assert (normalize_n1(text), normalize_n2(text)) == GOLDEN[text]


def test_two_dialects_are_not_mixed_up() -> None:
    """N1 joins U.S.A. into one word, N2 splits it: one prediction, two verdicts."""
    assert em("USA", ["U.S.A."]) == 1.0 and em("USA", ["U.S.A."], normalize_n2) == 0.0
    assert em("rock n roll", ["rock-n-roll"]) == 0.0
    assert em("rock n roll", ["rock-n-roll"], normalize_n2) == 1.0


@given(TEXTS)
def test_normalising_twice_changes_nothing(text: str) -> None:
    for normalize in (normalize_n1, normalize_n2):
        once = normalize(text)
        assert normalize(once) == once


@pytest.mark.parametrize(
    ("prediction", "golds", "expected"),
    [
        # (em, cover_em, f1, fuzzy)
        ("Paris", ["Paris"], (1, 1, 1, 1)),
        ("  the PARIS. ", ["paris"], (1, 1, 1, 1)),
        ("Paris, France", ["Paris"], (0, 1, 2 / 3, 0.5)),
        ("14 school days", ["14 days"], (0, 0, 0.8, 0.5)),
        ("Rome", ["Paris", "Rome"], (1, 1, 1, 1)),
        ("London", ["Paris", "Rome"], (0, 0, 0, 0)),
        ("b b c", ["b c c"], (0, 0, 2 / 3, 0.5)),
        ("", ["Paris"], (0, 0, 0, 0)),
        ("the", ["Paris"], (0, 0, 0, 0)),
        (None, ["Paris"], (0, 0, 0, 0)),
        ("Paris", [], (0, 0, 0, 0)),
        ("yes", ["no"], (0, 0, 0, 0)),
        ("yes it is", ["yes"], (0, 1, 0, 0)),
        ("Shakespear", ["Shakespeare"], (0, 0, 0, 0.5)),
        # A long answer that contains the gold is covered, not exact.
        ("I believe it was Marie Curie in 1903", ["Marie Curie"], (0, 1, 0.4, 0)),
        # Whole tokens only.
        ("music", ["us"], (0, 0, 0, 0)),
        ("the us", ["us"], (1, 1, 1, 1)),
        ("New Yorker", ["New York"], (0, 0, 0.5, 0.5)),
        ("13 days", ["3 days"], (0, 0, 0.5, 0)),
        # 2PR/(P+R) with P = 2/4 and R = 2/3.
        ("b b c d", ["b c c"], (0, 0, 4 / 7, 0)),
        # Near from an F1 of .6, or 17 of 20 characters in their order; not at 5 of 6 letters.
        ("b c d e f", ["b c d x y"], (0, 0, 0.6, 0.5)),
        ("bcdefghijklmnopqrstu", ["bcdefghijklmnopqrxyz"], (0, 0, 0, 0.5)),
        ("planed", ["planet"], (0, 0, 0, 0)),
        ("x" + "bc" * 150, ["y" + "bc" * 150], (0, 0, 0, 0.5)),
        # Never near across numbers or negations.
        ("13 school days", ["14 school days"], (0, 0, 2 / 3, 0)),
        ("13th of July", ["14th of July"], (0, 0, 2 / 3, 0)),
        ("phones are not allowed", ["phones are allowed"], (0, 0, 6 / 7, 0)),
        ("July 1789", ["14 July 1789"], (0, 0, 0.8, 0)),
        ("on 14 July 1789", ["14 July 1789"], (0, 1, 6 / 7, 0.5)),
        ("十四天内", ["十三天内"], (0, 0, 2 / 3, 0)),
        # Chinese is compared by character, and a numeral is one token.
        ("不得超过三天。", ["三天"], (0, 1, 4 / 9, 0)),
        ("不得超过十三天。", ["三天"], (0, 0, 2 / 9, 0)),
        ("三个工作日", ["三个工作日内"], (0, 0, 10 / 11, 0.5)),
        ("noanswer it is", ["noanswer"], (0, 1, 0, 0)),
        ("none of them", ["all of them"], (0, 0, 2 / 3, 0)),
        ("it was never open", ["it was open"], (0, 0, 6 / 7, 0)),
        ("未经同意", ["经同意"], (0, 1, 6 / 7, 0)),
        # The same numbers, as often as in the gold.
        ("3 or 3 days", ["3 or more days"], (0, 0, 3 / 4, 0)),
    ],
)
def test_scores_by_hand(prediction: str | None, golds: list[str], expected: tuple[float, ...]):
    got = tuple(score(prediction, golds) for score in (em, cover_em, f1, fuzzy))
    assert got == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("gold", ["the", "A", "The The", "...", "", "  "])
def test_gold_that_normalises_to_empty_does_not_match_everything(gold: str) -> None:
    for prediction in ("Paris", "a", "anything at all", "the end"):
        same = prediction.strip().lower() == gold.strip().lower()
        assert cover_em(prediction, [gold]) == 0.0
        assert em(prediction, [gold]) == f1(prediction, [gold]) == fuzzy(prediction, [gold]) == same
    assert em(f" {gold.upper()} ", [gold]) == 1.0


def test_gold_given_as_a_bare_string_is_one_gold_and_not_its_letters() -> None:
    assert em("a", "Paris") == em("p", "Paris") == 0.0 and em("paris", "Paris") == 1.0


def test_trailing_control_token_does_not_spoil_a_right_answer() -> None:
    for token in ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>"):
        assert em(f"Paris{token}", ["Paris"]) == 1.0
    assert em("<b>Paris</b>", ["Paris"]) == 0.0
    assert shared_words("The old, old town<|im_end|>", "Old town of old") == ("old", "old", "town")


def test_chinese_answers_are_compared_by_character_and_whole_numeral() -> None:
    assert tokenize("不超过十三天") == ["不", "超", "过", "十三", "天"]
    assert tokenize("九千两百年 ひらがな") == ["九千两百", "年", "ひ", "ら", "が", "な"]
    assert tokenize("\uf900\ufaff") == ["\uf900", "\ufaff"]  # compatibility characters
    assert tokenize("iphone 手机15部") == ["iphone", "手", "机", "15", "部"]


@given(TEXTS, st.lists(TEXTS, max_size=3))
def test_scores_are_ordered_bounded_and_total(prediction: str, golds: list[str]) -> None:
    exact, cover, overlap, near = (score(prediction, golds) for score in (em, cover_em, f1, fuzzy))
    assert exact in (0.0, 1.0) and cover in (0.0, 1.0) and near in (0.0, 0.5, 1.0)
    assert 0.0 <= exact <= overlap <= 1.0 and exact <= near
    if exact and all(normalize_n1(gold) for gold in golds):
        assert cover == 1.0


@given(st.lists(TEXTS, min_size=1, max_size=3), st.data())
def test_a_gold_answer_is_always_exact(golds: list[str], data: st.DataObject) -> None:
    gold = data.draw(st.sampled_from(golds))
    if "<" not in gold:  # "<|a|>" is a control token in a prediction, and text in a gold
        assert em(gold, golds) == f1(gold, golds) == fuzzy(gold, golds) == 1.0
