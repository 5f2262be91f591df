"""Cells as pandas, Arrow, numpy and tables write them: read as what they were, or refused."""

import csv
import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchrl.data import Problems, iter_corpus, read_judgements, read_questions
from searchrl.data.cells import read_texts, unpack
from searchrl.data.questions import Question
from searchrl.errors import DataError

NAN = float("nan")


def read(path: Path) -> list[Question]:
    problems = Problems()
    found = list(read_questions([path], problems))
    problems.ensure_none()
    return found


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as `DataFrame.to_csv` does: `str` of every value, nothing for a missing one."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, [*dict.fromkeys(key for row in rows for key in row)])
        table.writeheader()
        table.writerows(rows)
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return path


WRITERS = {"csv": write_csv, "parquet": write_parquet, "jsonl": write_jsonl}
ROWS = [
    {"id": 3.0, "question": "q?", "answer": 1874.0, "supporting_ids": ["p0", "p1"], "level": "a"},
    {"id": 4.0, "question": "r?", "answer": -2.0, "supporting_ids": ["p2"], "level": None},
]


@pytest.mark.parametrize("kind", WRITERS)
def test_whole_numbers_that_became_floats_are_whole_again(tmp_path: Path, kind: str) -> None:
    first, second = read(WRITERS[kind](tmp_path / f"q.{kind}", ROWS))
    assert (first.id, first.answers, first.gold_ids) == ("3", ("1874",), ("p0", "p1"))
    assert (second.id, second.answers, second.difficulty) == ("4", ("-2",), "")


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        ("3.50", "3.50"),
        (3.5, "3.5"),
        ("['Ida Veen', 'Veen']", "Ida Veen;Veen"),
        ("['Ida Veen' 'Veen']", "Ida Veen;Veen"),
        ("['a' nan]", None),
        ("['a' 'b' ... 'z']", None),
        ("{'a', 'b'}", None),
        ("array(['a', 'b'], dtype=object)", "array(['a', 'b'], dtype=object)"),
        ("{'target': array(['a', 'b'], dtype=object)}", "a;b"),
        ("[np.str_('a'), np.int64(3)]", "a;3"),
        ("('a', 'b')", "a;b"),
        ("(1, 2)", "(1, 2)"),
        ("[sic] Veen", "[sic] Veen"),
    ],
)
def test_answers_in_a_text(tmp_path: Path, kind: str, answer: Any, seen: str | None) -> None:
    path = WRITERS[kind](tmp_path / f"q.{kind}", [{"question": "q?", "answer": answer}])
    if seen is not None:
        assert read(path)[0].answers == tuple(seen.split(";"))
        return
    with pytest.raises(DataError, match=r"q\.\w+:\d: .*('answer'|no value)"):
        read(path)


@pytest.mark.parametrize(
    "value", [datetime(2020, 1, 1), b"x", True, NAN, 2.0**60, float("inf"), {"a": "b"}, [None]]
)
def test_a_value_that_is_no_answer_is_refused_with_its_type(tmp_path: Path, value: Any) -> None:
    path = write_parquet(tmp_path / "q.parquet", [{"question": "q?", "answer": value}])
    with pytest.raises(DataError, match=r"q\.parquet:1: .*(answer)"):
        read(path)
    (question,) = read(write_parquet(path, [{"question": "q?", "answer": Decimal("3.50")}]))
    assert question.answers == ("3.50",)


def test_cells_of_verl_rows_that_went_through_a_table(tmp_path: Path) -> None:
    rows = [
        {
            "data_source": source,
            "id": "train_0",
            "prompt": "[{'role': 'system', 'content': 's'}\n {'role': 'user', 'content': 'q?'}]",
            "reward_model": "{'ground_truth': {'target': array(['x', 'y'], dtype=object)}}",
            "answer": cell,
        }
        for source, cell in (("nq", "nan"), ("hotpotqa", ""))
    ]
    first, second = read(write_csv(tmp_path / "train.csv", rows))
    assert (first.id, second.id) == ("nq/train_0", "hotpotqa/train_0")
    assert (first.question, first.answers) == ("q?", ("x", "y"))


def test_a_column_of_a_table_is_whole_only_where_every_cell_is(tmp_path: Path) -> None:
    rows = [{"question": "q?", "answer": "3.0"}, {"question": "r?", "answer": "2.5"}]
    answers = [one.answers for one in read(write_csv(tmp_path / "q.csv", rows))]
    assert answers == [("3.0",), ("2.5",)]
    rows = [{"question": f"{n}?", "answer": "3.0"} for n in range(1024)]
    late = write_csv(tmp_path / "q.csv", [*rows, {"question": "r?", "answer": "2.5"}])
    with pytest.raises(DataError, match="q.csv:1026: 'answer' is '2.5' and a whole number in all"):
        read(late)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("cell", ["p0", "p0;p1", " p0 ; p1 ", '["p0", "p1"]', "['p0' 'p1']"])
def test_ids_in_a_cell_are_a_list(tmp_path: Path, kind: str, cell: str) -> None:
    row = {"question": "q?", "answer": "x", "supporting_ids": cell, "slices": "old;long"}
    (question,) = read(WRITERS[kind](tmp_path / f"q.{kind}", [row]))
    assert question.gold_ids == ("p0", "p1")[: 1 if cell == "p0" else 2]
    assert question.slices == ("old", "long")


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1)


@given(TEXTS)
def test_lists_are_read_back_as_python_json_and_numpy_write_them(texts: list[str]) -> None:
    array = np.array(texts, dtype=object)
    with np.printoptions(threshold=10**6):
        forms = [repr(texts), json.dumps(texts), str(array), repr(tuple(texts))]
    for form in forms:
        assert unpack(form) == texts
    held = "{'target': " + repr(array) + "}"
    assert unpack(held) == {"target": texts}


@given(st.one_of(st.text(), st.text("[]{}()'\",. an1\n\\")))
def test_any_cell_is_read_or_refused(text: str) -> None:
    from searchrl.data import BadRow

    try:
        found = read_texts({"key": text}, "key", "a list", ";")
    except BadRow:
        return
    assert all(one.strip() for one in found)


SEPARATED = "a\u2028b\x0bc\x0cd\x85e"


def test_only_line_ends_separate_rows_and_ids(tmp_path: Path) -> None:
    (tmp_path / "qrels.tsv").write_text(f"query 1\t{SEPARATED}\t1\r\nq2\tp2\t1\n", "utf-8")
    read_qrels = read_judgements(tmp_path / "qrels.tsv", problems := Problems())
    assert read_qrels == {"query 1": {SEPARATED: 1}, "q2": {"p2": 1}} and not problems.found
    (tmp_path / "trec.tsv").write_text(f"q1 0 {SEPARATED} 1\n", "utf-8")
    assert read_judgements(tmp_path / "trec.tsv", problems) == {"q1": {SEPARATED: 1}}
    row = f'{{"id": "{SEPARATED}", "text": "t"}}\n'
    (tmp_path / "c.jsonl").write_bytes(json.dumps({"id": SEPARATED, "text": "t"}).encode())
    (tmp_path / "u.jsonl").write_text(row.replace("\x0b", "").replace("\x0c", ""), "utf-8")
    assert [p.id for p in iter_corpus(tmp_path / "c.jsonl", problems)] == [SEPARATED]
    assert [p.id for p in iter_corpus(tmp_path / "u.jsonl", problems)] == ["a\u2028bcd\x85e"]


@pytest.mark.parametrize(
    ("first", "seen"),
    [
        ("query-id\tcorpus-id\tscore", {}),
        ("qid 0 docid rel", {}),
        ("query-1\tp1\t1", {"query-1": {"p1": 1}}),
        ("query 0 p1 1", {"query": {"p1": 1}}),
        ("query-1\tp1\thigh", None),
    ],
)
def test_the_header_of_judgements_is_known_by_its_shape(
    tmp_path: Path, first: str, seen: dict[str, Any] | None
) -> None:
    (tmp_path / "test.tsv").write_text(f"{first}\nq2\tp2\t1\n")
    found = read_judgements(tmp_path / "test.tsv", problems := Problems())
    assert bool(problems.found) == (seen is None)
    assert found == {**(seen or {}), "q2": {"p2": 1}}


def test_a_fault_of_many_rows_is_one_line_with_their_number(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "q.jsonl", [{"question": "q?"}] * 7)
    with pytest.raises(DataError) as caught:
        read(path)
    (line,) = str(caught.value).splitlines()[1:]
    assert line.startswith(f"  {path}:1: has no answer") and line.endswith("(and 6 more like it)")
