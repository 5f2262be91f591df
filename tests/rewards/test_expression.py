"""The expression language: values, round trips, carets and suggestions; schedules."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from searchrl.errors import ExpressionError, UnknownNameError
from searchrl.rewards.components import BUILTIN_REWARDS
from searchrl.rewards.expression import (
    Expression,
    RewardSchedule,
    UnknownComponentError,
    parse_expression,
)

KNOWN = (*BUILTIN_REWARDS, "my-plugin:judge", "my-plugin:judge_zh", "judge_v2")


@pytest.mark.parametrize(
    ("text", "terms", "constant"),
    [
        ("format+em", ((1, "format"), (1, "em")), 0),
        (" - em\n+ .5 * f1 ", ((-1, "em"), (0.5, "f1")), 0),
        ("2*em-1", ((2, "em"),), -1),
        ("1+em+0.5", ((1, "em"),), 1.5),
        ("0*searched+1e-3*em", ((0, "searched"), (1e-3, "em")), 0),
        ("em+format+em", ((2, "em"), (1, "format")), 0),
        ("em-em", ((0, "em"),), 0),
        ("format-my-plugin:judge", ((1, "format"), (-1, "my-plugin:judge")), 0),
    ],
)
def test_reads(text: str, terms: tuple[tuple[float, str], ...], constant: float) -> None:
    assert parse_expression(text, KNOWN) == Expression(terms, constant)


def test_weights_are_never_normalised() -> None:
    scores = {"format": 1.0, "em": 1.0, "searches": 3.0}
    assert parse_expression("10*format+20*em").evaluate(scores) == 30.0
    assert parse_expression("em-0.25").evaluate(scores) == 0.75
    assert parse_expression("0.2*format+em-0.01*searches").evaluate(scores) == pytest.approx(1.17)


def test_a_weight_of_zero_is_not_read_and_a_missing_score_is_an_error() -> None:
    assert parse_expression("em+0*judge").evaluate({"em": 1.0}) == 1.0
    with pytest.raises(KeyError, match="judge"):
        parse_expression("em+judge").evaluate({"em": 1.0})


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected a component name or a number, found the end"),
        ("format ++ em", 9, "expected a component name or a number, found '+'"),
        ("(em)", 1, "found '('"),
        ("0.2**em", 5, "expected a component name after '*', found '*'"),
        ("em*2", 3, "the weight comes first: 2*em"),
        ("2em", 2, "expected '*', '+', '-' or the end, found 'e'"),
        ("1e999*em", 1, "1e999 is not a finite number"),
        ("1e308*em+1e308*em", 10, "the sum of the weights is not a finite number"),
        ("0.5", 1, "names no reward component"),
        ("nan*em", 1, "unknown reward component 'nan'"),
    ],
)
def test_a_malformed_expression_carries_a_caret_at_the_place(text: str, column: int, message: str):
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text, KNOWN)
    head, shown, caret, shape = str(caught.value).splitlines()
    assert message in head and f"column {column}:" in head
    assert shown == "  " + text and caret == "  " + " " * (column - 1) + "^"
    assert '"0.2*format+em-0.01*searches"' in shape


def test_caret_stands_under_the_place_after_wide_characters_and_line_breaks() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression("中文+\n)", ("中文",))
    lines = str(caught.value).splitlines()
    assert lines[1] == "  中文+ )"
    assert lines[2] == "  " + " " * 6 + "^"  # two columns for each Chinese character


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [
        ("formt+em", "formt", "Did you mean 'format'"),
        ("em-my-plugn:judge", "my-plugn:judge", "Did you mean 'my-plugin:judge'"),
        ("other:em", "other:em", "Did you mean 'em'"),
        ("zzzzz", "zzzzz", "Known: all_gold, cover_em, em"),
    ],
)
def test_an_unknown_component_is_named_with_a_suggestion(text: str, wrong: str, hint: str) -> None:
    with pytest.raises(UnknownComponentError) as caught:
        parse_expression(text, KNOWN)
    assert isinstance(caught.value, ExpressionError) and isinstance(caught.value, UnknownNameError)
    head, _, caret, _ = str(caught.value).splitlines()
    assert f"unknown reward component '{wrong}'" in head and hint in head
    assert caret.index("^") - 2 == text.index(wrong)


def test_without_known_names_any_name_passes_and_qualified_names_keep_their_hyphens() -> None:
    parsed = parse_expression("2*my-plugin:judge - other")
    assert parsed.names == ("my-plugin:judge", "other")
    assert str(parsed) == "2*my-plugin:judge - other"


NAMES = st.sampled_from(["em", "f1", "judge_v2", "my-plugin:judge", "pkg.x:em", "_x", "e5", "中文"])
WEIGHTS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e100, max_value=1e100)


@example({"em": 1.0, "pkg.x:em": -1.0}, 0.0)
@given(st.dictionaries(NAMES, WEIGHTS, min_size=1), WEIGHTS)
def test_str_round_trips(weights: dict[str, float], constant: float) -> None:
    # + 0.0: the language has no negative zero.
    terms = tuple((weight + 0.0, name) for name, weight in weights.items())
    expression = Expression(terms, constant + 0.0)
    assert parse_expression(str(expression), weights) == expression
    assert parse_expression(str(expression)) == expression


@pytest.mark.parametrize("known", [None, KNOWN])
@given(st.one_of(st.text(alphabet="em+-*. 0123e()f1:_中\n", max_size=20), st.text(max_size=12)))
def test_the_parser_is_total(known: tuple[str, ...] | None, text: str) -> None:
    """Any text is an expression with finite weights or an ExpressionError; nothing else."""
    try:
        parsed = parse_expression(text, known)
    except ExpressionError as error:
        assert "^" in str(error)
    else:
        assert parsed.terms and all(math.isfinite(weight) for weight, _ in parsed.terms)
        assert parse_expression(str(parsed)) == parsed


DAG = {0: "0.2*judge+0.4*valid_dag+0.4*format", 30: "0.5*judge+0.25*valid_dag+0.25*format"}


def test_schedule_changes_exactly_after_the_first_thirty_steps() -> None:
    schedule = RewardSchedule.parse(DAG)
    assert schedule.at(0) == schedule.at(1) == schedule.at(30)
    assert schedule.at(30).terms[0] == (0.2, "judge")
    assert schedule.at(31).terms[0] == (0.5, "judge") and schedule.at(10**9) == schedule.at(31)
    assert schedule.names == ("judge", "valid_dag", "format")
    assert str(schedule).endswith("until step 30, then 0.5*judge+0.25*valid_dag+0.25*format")


def test_a_wrong_expression_in_a_schedule_keeps_its_caret_and_names_the_stage() -> None:
    with pytest.raises(UnknownComponentError) as caught:
        RewardSchedule.parse({0: "em", 3: "em+forma"}, KNOWN)
    assert str(caught.value).startswith("reward from step 3: reward expression, column 4")
    assert "\n     ^\n" in str(caught.value)
