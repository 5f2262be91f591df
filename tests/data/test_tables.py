"""Tables of questions: delimiters, quotes, cells that hold lists, and rows that are no rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from searchrl.data.dataset import read_questions
from searchrl.data.problems import Problems
from searchrl.data.questions import Question


def read(path: Path) -> tuple[list[Question], list[tuple[int, str]]]:
    """The questions of a file, and the lines and reasons of what is wrong with it."""
    problems = Problems()
    questions = list(read_questions([path], problems))
    return questions, [(problem.number, problem.reason) for problem in problems.found]


def questions_of(path: Path) -> list[Question]:
    questions, wrong = read(path)
    assert not wrong
    return questions


def reasons(path: Path) -> list[tuple[int, str]]:
    return read(path)[1]


@pytest.mark.parametrize("name", ["q.csv", "q.CSV.gz", "q.tsv", "q.tsv.gz"])
def test_tables_with_named_columns_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    mark = "\t" if "tsv" in name else ","
    lines = [
        ("id", "question", "golden_answers", "supporting_ids", "type"),
        ("7", '"Wann, schließt\nes?"', '"[""x"", ""y""]"', "\"['3', '4']\"", "bridge"),
        ("", "", "", "", ""),
        ("8", "[1]?", "x", "", ""),
    ]
    # As spreadsheets write it: with a byte order mark.
    data = "\n".join(mark.join(cells) for cells in lines).encode("utf-8-sig")
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    first, second = questions_of(path)
    assert (first.id, first.question) == ("7", "Wann, schließt\nes?")
    assert (first.answers, first.gold_ids, first.kind) == (("x", "y"), ("3", "4"), "bridge")
    assert (second.question, second.answers, second.line) == ("[1]?", ("x",), 5)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("question,answer\nq?,x\nq2?\n", 3, "has 1 cells under 2 columns"),
        ("question,question\nq?,x\n", 0, "name each column once"),
        (",\n1,2\n", 0, "name each column once"),
        ("question,answer\n,x\n", 2, "has no 'question'"),
    ],
)
def test_bad_tables_are_reported(tmp_path: Path, text: str, line: int, reason: str) -> None:
    path = tmp_path / "q.csv"
    path.write_text(text)
    ((found, why),) = reasons(path)
    assert found == line and reason in why
