"""Data files: every wire format is read, every bad row is reported with its line."""

import bz2
import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchrl.core.episode import Passage
from searchrl.data import Problems, read_questions
from searchrl.data.passages import iter_corpus
from searchrl.data.questions import Question
from searchrl.data.rows import read_rows
from searchrl.errors import ConfigError


def write(path: Path, *rows: Any) -> Path:
    lines = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def questions_of(*paths: Path) -> list[Question]:
    problems = Problems()
    questions = list(read_questions(paths, problems))
    problems.ensure_none()
    return questions


def corpus_of(path: Path) -> list[Passage]:
    problems = Problems()
    passages = list(iter_corpus(path, problems, {}))
    problems.ensure_none()
    return passages


def reasons(path: Path, *, corpus: bool = False) -> list[tuple[int, str]]:
    problems = Problems()
    list(iter_corpus(path, problems, {}) if corpus else read_questions([path], problems))
    assert all(problem.path == path for problem in problems.found)
    return [(problem.number, problem.reason) for problem in problems.found]


PROMPT = "Answer the given question. Question: example? No. Question: who founded Rome?\n"
CHAT = [{"role": "user", "content": PROMPT}]
WITH_SYSTEM = [{"role": "system", "content": "s"}, {"role": "user", "content": "q?"}]


def wire(prompt: Any, truth: Any, **more: Any) -> dict[str, Any]:
    """A row of verl: what Search-R1 trains on."""
    about = {"data_source": "nq", "extra_info": {"split": "train", "index": 0}}
    reward_model = {"style": "rule", "ground_truth": truth}
    return about | {"prompt": prompt, "reward_model": reward_model} | more


@pytest.mark.parametrize(
    ("row", "question", "answers"),
    [
        ({"id": "a", "question": "q?", "answer": "x"}, "q?", ("x",)),
        ({"id": "a", "question": " q? ", "answer": ["x", "y", "x"]}, "q?", ("x", "y")),
        ({"question": "q?", "answers": ["x", " y "]}, "q?", ("x", "y")),
        ({"question": "q?", "answer": {"target": ["x", "y"]}}, "q?", ("x", "y")),
        ({"question": "q?", "answer": 42}, "q?", ("42",)),
        (wire(CHAT, {"target": ["Romulus"]}), "who founded Rome?", ("Romulus",)),
        (wire(WITH_SYSTEM, "x"), "q?", ("x",)),
        (wire("q?", "x<|answer_split|>y "), "q?", ("x", "y")),
        ({"question": "q?", "answer": "x", "answer_aliases": ["y", "x"]}, "q?", ("x", "y")),
        (wire("Long template q?", ["x"], extra_info={"question": "q?"}), "q?", ("x",)),
    ],
)
def test_question_row_shapes(
    tmp_path: Path, row: dict[str, Any], question: str, answers: tuple[str, ...]
) -> None:
    (read,) = questions_of(write(tmp_path / "nq.jsonl", row))
    assert (read.question, read.answers) == (question, answers)
    assert read.id == str(row.get("id") or row.get("_id") or "nq-1")


def test_all_files_of_queries_in_a_folder_are_read(tmp_path: Path) -> None:
    """SciFact keeps those of its training split in a file of their own."""
    (tmp_path / "qrels").mkdir()
    for split, name in (("test", "queries"), ("train", "queries_train")):
        write(tmp_path / f"{name}.jsonl", {"_id": f"{split}1", "text": f"a {split} claim"})
        (tmp_path / "qrels" / f"{split}.tsv").write_text(
            f"query-id\tcorpus-id\tscore\n{split}1\td1\t1\n"
        )
    found = [(one.id, one.split, one.gold_ids) for one in questions_of(tmp_path)]
    assert found == [("test1", "test", ("d1",)), ("train1", "train", ("d1",))]


def test_blank_passages_are_left_out_and_said(tmp_path: Path) -> None:
    blank = [{"id": "b", "text": "", "title": " "}, {"_id": "c", "contents": " "}]
    path = write(tmp_path / "c.jsonl", {"id": "a", "text": "x"}, *blank)
    problems = Problems()
    assert [passage.id for passage in iter_corpus(path, problems)] == ["a"]
    (note,) = problems.notes
    assert "left out: 2" in note and str(path) in note and not problems.found
    table = tmp_path / "c.csv"
    table.write_text("id,title,text,url\na,,x,u\nb,,,u\n")
    assert [passage.id for passage in iter_corpus(table, problems)] == ["a"]
    assert "left out: 1" in problems.notes[-1] and not problems.found


def test_gold_ids_kind_and_place_are_kept(tmp_path: Path) -> None:
    row = {"id": 5, "question": "q?", "answer": "x", "supporting_ids": [3, "4"], "type": "bridge"}
    path = write(tmp_path / "q.jsonl", "", row)
    expected = Question("5", "q?", ("x",), ("3", "4"), "bridge", str(path), 2)
    assert questions_of(path) == [expected]
    assert questions_of(write(path, row | {"type": None}))[0].kind == "question"


def test_slices_of_a_question_reach_its_task(tmp_path: Path) -> None:
    row = {"question": "q?", "answer": "x", "slices": ["old", "long-form", "old"]}
    (question,) = questions_of(write(tmp_path / "q.jsonl", row))
    assert question.as_task("corpus", "test", 0).slices == ("old", "long-form")


@pytest.mark.parametrize(
    ("row", "passage"),
    [
        ({"id": "1", "contents": '"Rome"\nA city.\nOld.'}, Passage("1", "A city.\nOld.", "Rome")),
        ({"id": 1, "contents": '"The "Big" One"\ntext'}, Passage("1", "text", 'The "Big" One')),
        ({"id": "1", "contents": "Rome\nA city."}, Passage("1", "A city.", "Rome")),
        ({"id": "1", "contents": "w" * 300 + "\nx"}, Passage("1", "w" * 300 + "\nx")),
        ({"id": "1", "contents": '"Quoted" words'}, Passage("1", '"Quoted" words')),
        ({"_id": "1", "title": "Rome", "text": "A", "metadata": {}}, Passage("1", "A", "Rome")),
        ({"id": "1", "title": "Rome", "text": "A city."}, Passage("1", "A city.", "Rome")),
    ],
)  # fmt: skip
def test_corpus_row_layouts(tmp_path: Path, row: dict[str, Any], passage: Passage) -> None:
    assert corpus_of(write(tmp_path / "c.jsonl", row)) == [passage]


ROWS = [{"id": str(i), "question": f"q{i}?", "answer": "x"} for i in range(3)]


def test_json_jsonl_packed_and_byte_order_mark_read_the_same(tmp_path: Path) -> None:
    jsonl = write(tmp_path / "q.jsonl", *ROWS)
    plain = jsonl.read_bytes()
    variants = {
        "q.jsonl.gz": gzip.compress(plain),
        "q.jsonl.bz2": bz2.compress(plain),
        "misnamed.jsonl": gzip.compress(plain),
        "bom.jsonl": b"\xef\xbb\xbf" + plain,
        "windows.jsonl": plain.replace(b"\n", b"\r\n"),
        "q.json": json.dumps(ROWS).encode(),
    }
    expected = [(q.id, q.question, q.answers) for q in questions_of(jsonl)]
    assert len(expected) == 3
    for name, data in variants.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert [(q.id, q.question, q.answers) for q in questions_of(path)] == expected, name


BAD_QUESTIONS: list[tuple[Any, str]] = [
    ("{not json", "not JSON: "),
    ("[1, 2]", "expected an object, got [1, 2]"),
    ({"id": "a", "answer": "x"}, "has no 'question'"),
    ({"id": "a", "question": "", "answer": "x"}, "'question' is empty"),
    ({"id": "a", "question": 3, "answer": "x"}, "'question' must be text, got 3"),
    ({"id": "a", "question": "q?"}, "has no answer"),
    ({"id": "a", "question": "q?", "answer": []}, "'answer' is an empty list"),
    ({"id": "a", "question": "q?", "answer": ["x", ""]}, "'answer' holds an empty answer"),
    ({"id": "a", "question": "q?", "answer": True}, "'answer' must be text or a list"),
    ({"id": "a", "question": "q?", "answer": {"value": "x"}}, "without 'target'"),
    ({"id": ["a"], "question": "q?", "answer": "x"}, "'id' must be text or a whole number"),
    ({"id": "a", "question": "q?", "answer": "x", "supporting_ids": {}}, "'supporting_ids' must"),
    ({"id": "a", "question": "q?", "answer": "x", "slices": [""]}, "'slices' must be a list of"),
    ({"id": "a", "question": "q?", "answer": "x", "slices": ["a/b"]}, "the slice 'a/b'; expected"),
    ({"id": "a", "question": "q?", "answer": "x", "type": "b", "slices": ["b"]}, "is its kind"),
    ('{"id": "a", "question": ' + "[" * 100_000, "not JSON"),
    (r'{"id": "a", "question": "\ud83d?", "answer": "x"}', "half of a surrogate pair, '\\ud83d'"),
]


@pytest.mark.parametrize(("row", "expected"), BAD_QUESTIONS)
def test_malformed_question_row_is_reported_with_its_line(tmp_path: Path, row: Any, expected: str):
    path = write(tmp_path / "q.jsonl", {"id": "first", "question": "q?", "answer": "x"}, row)
    ((line, reason),) = reasons(path)
    assert line == 2 and expected in reason


def test_duplicate_ids_name_both_places(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", ROWS[0], ROWS[1], ROWS[0])
    assert reasons(path) == [(3, f"duplicate id '0', first used at {path}:1")]
    number = write(tmp_path / "n.jsonl", {"id": 1, "text": "x"}, {"id": "1", "text": "y"})
    assert reasons(number, corpus=True) == [(2, f"duplicate id '1', first used at {number}:1")]
    other = write(tmp_path / "other.jsonl", ROWS[1])
    problems = Problems()
    list(read_questions([path, other], problems))
    assert f"{other}:1: duplicate id '1', first used at {path}:2" in map(str, problems.found)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"title": "t", "text": "x"}, "has no 'id'"),
        ({"id": "a"}, "has neither 'text' nor 'contents'"),
        ({"id": "a", "text": ["x"]}, "'text' must be text"),
        ("[]", "expected an object"),
    ],
)
def test_malformed_corpus_row_is_reported_with_its_line(tmp_path: Path, row: Any, expected: str):
    path = write(tmp_path / "c.jsonl", {"id": "first", "text": "x"}, "", row)
    ((line, reason),) = reasons(path, corpus=True)
    assert line == 3 and expected in reason


PLAIN = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
PACKED = gzip.compress(PLAIN, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        # A damaged file is reported, and never read halfway.
        ("truncated.jsonl.gz", PACKED[:-12], 0, "is a damaged archive"),
        ("corrupt.jsonl.gz", PACKED[:14] + b"\xff" * 3 + PACKED[17:], 0, "is a damaged archive"),
        ("latin.jsonl", PLAIN + b'{"id": "b\xe9"}\n', 4, "not UTF-8 text (byte 10 of the line)"),
        ("blank.jsonl", b"\n", 0, "holds no {}; expected rows"),
        ("list.json", b"[]", 0, "holds no {}; expected rows"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_problem(
    tmp_path: Path, name: str, content: bytes | None, line: int, reason: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    # As a corpus, rows of questions have problems of their own, which begin with "has".
    for corpus, what in ((False, "question"), (True, "passage")):
        found = [r for r in reasons(tmp_path / name, corpus=corpus) if not r[1].startswith("has ")]
        assert [at for at, _ in found] == [line] and found[0][1].startswith(reason.format(what))


@pytest.mark.parametrize("name", ["q.csv", "q.TSV.gz"])
def test_tables_with_named_columns_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    mark = "\t" if "TSV" in name else ","
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
        ("question,answer\n,x\n", 2, "has no 'question'"),
    ],
)
def test_bad_tables_are_reported(tmp_path: Path, text: str, line: int, reason: str) -> None:
    path = tmp_path / "q.csv"
    path.write_text(text)
    ((found, why),) = reasons(path)
    assert found == line and reason in why


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "train.PARQUET").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"pip install 'searchrl\[data\]'"):
        list(read_questions([tmp_path / "train.PARQUET"], Problems()))


def test_parquet_rows_of_search_r1(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        wire(CHAT, {"target": ["x", "y"]}, id=f"train_{i}", question=text, golden_answers=["x"])
        for i, text in enumerate(["q?", ""])
    ]
    path = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert reasons(path) == [(2, "'question' is empty")]
    parquet.write_table(pyarrow.Table.from_pylist(rows[:1]), path)
    (read,) = questions_of(path)
    assert (read.id, read.question, read.answers) == ("nq/train_0", "q?", ("x",))
    path.write_bytes(b"PAR1 broken")
    assert "unreadable Parquet" in reasons(path)[0][1]


@given(st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=5)), max_size=4), st.data())
def test_reading_never_raises_on_odd_rows(values: list[Any], data: st.DataObject) -> None:
    keys = st.sampled_from(
        "id question answer prompt reward_model extra_info supporting_ids slices".split()
    )
    value = st.sampled_from([*values, None, values, {"target": values}])
    rows = data.draw(st.lists(st.dictionaries(keys, value, max_size=5), min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "q.jsonl", *rows)
        problems = Problems()
        questions = list(read_questions([path], problems))
        assert len(questions) + problems.counts.total() == len(rows)
        assert len(list(read_rows(path, Problems()))) == len(rows)
