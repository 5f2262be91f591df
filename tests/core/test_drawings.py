"""What came in place of a list of drawings is named; what can be stored is not."""

import pytest

from searchrl.core.drawing import MAX_DRAWING, Graph, Table, Text, find_drawings_problem

WIDE = MAX_DRAWING - len(repr(Text("t", "")))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "NoneType; expected a list"),
        ("text", "str; expected a list"),
        (["text"], "a list that holds str"),
        ([Text(3, "x")], "a Text with the title 3; expected text"),  # type: ignore[arg-type]
        ([Text("t", 3)], "a Text with the text 3; expected text"),  # type: ignore[arg-type]
        ([Table("t", [1], [])], "a Table with the columns [1]"),  # type: ignore[list-item]
        ([Table("t", ["a"], [["x", "y"]])], "a Table with a row of 2 cells below 1 columns"),
        ([Table("t", ["a", "b"], [["x"]])], "a Table with a row of 1 cells below 2 columns"),
        ([Table("t", ["a"], [[float("nan")]])], "a Table with the cell nan"),
        ([Graph("t", {"a": 1})], "a Graph with the nodes"),  # type: ignore[dict-item]
        ([Graph("t", {"a": "A"}, [("a", "b")])], "a Graph with the edge ('a', 'b')"),
        ([Graph("t", {"a": "A"}, [("a",)])], "a Graph with the edge ('a',)"),  # type: ignore[list-item]
        ([Text("t", "x"), Text("t", "x" * (WIDE + 1))], "a Text of 50,001 characters; at most"),
        ([Text("t", "x" * WIDE), Table("t", ["a"], [["x"], [1.5]]), Graph("t", {"a": "A"})], ""),
    ],
)
def test_drawings_are_checked(value: object, problem: str) -> None:
    said = find_drawings_problem(value)
    assert said.startswith(problem) and bool(said) == bool(problem)
