"""Chunks: source code by its definitions in eight languages, and prose between sentences."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from searchrl_retrieval.chunking.code import (
    Chunk,
    ChunkKind,
    as_passages,
    chunk_code,
    read_code_folder,
)
from searchrl_retrieval.chunking.languages import LANGUAGES, load_grammar
from searchrl_retrieval.chunking.prose import chunk_passages

from searchrl import ConfigError
from searchrl.cli import main
from searchrl.contracts import Passage
from searchrl.data import Problems

PYTHON = '''"""Opening hours."""

from __future__ import annotations

import os
if True:
    from town import Hall

LIMIT = 3


@cached
def opens(hall: Hall) -> int:
    """When a hall opens.

    In minutes.
    """
    return hall.opens + LIMIT


class Town(Place):
    """All halls of a town."""

    halls: int = 1

    @property
    def first(self) -> str:
        # No docstring here.
        return "Elm"

    class Street:
        def name(self): return "Oak Row"


async def close(): pass
'''


def names(chunks: list[Chunk], *kinds: ChunkKind) -> list[str]:
    return [f"{c.kind} {c.name}" for c in chunks if not kinds or c.kind in kinds]


@pytest.fixture(autouse=True)
def _grammars() -> None:
    pytest.importorskip("tree_sitter")
    pytest.importorskip("tree_sitter_python")


def test_python_gives_every_kind_with_qualified_names() -> None:
    chunks = chunk_code(PYTHON, "town/hours.py")
    assert names(chunks) == [
        "docstring town.hours",
        "import town.hours",
        "code town.hours",
        "function town.hours.opens",
        "docstring town.hours.opens",
        "class town.hours.Town",
        "docstring town.hours.Town",
        "method town.hours.Town.first",
        "class town.hours.Town.Street",
        "method town.hours.Town.Street.name",
        "function town.hours.close",
    ]
    by_name = {f"{c.kind} {c.name}": c for c in chunks}
    opens = by_name["function town.hours.opens"]
    assert opens.text.startswith("@cached\ndef opens") and "In minutes." in opens.text
    assert opens.text.endswith("return hall.opens + LIMIT")
    assert PYTHON.splitlines()[opens.line - 1] == "@cached"
    assert by_name["docstring town.hours.opens"].text == "When a hall opens.\n\nIn minutes."
    imports = "from __future__ import annotations\nimport os\nfrom town import Hall"
    assert by_name["import town.hours"].text == imports
    assert by_name["code town.hours"].text == "LIMIT = 3"
    town = by_name["class town.hours.Town"].text
    assert "halls: int = 1" in town and "def first(self) -> str:" in town and "..." in town
    assert "Oak Row" not in town and "Elm" not in town
    first = by_name["method town.hours.Town.first"].text
    assert first.startswith("@property\ndef first") and '"Elm"' in first


@pytest.mark.parametrize(
    ("file", "source", "wanted"),
    [
        (
            "a.js",
            '/** When. */\nexport function f(x) { return 1 }\nclass A { m() { return 2 } }\n'
            "const g = (x) => { return 1 };\nconst K = 5;",
            ["function f", "docstring f", "class A", "method A.m", "function g", "code a"],
        ),
        (
            "a.tsx",
            'import x from "x";\ninterface I { a(): void }\nnamespace N { export function z() {} }',
            ["import a", "class I", "method I.a", "function N.z"],
        ),
        (
            "a.go",
            "// Package p.\npackage p\n\n// When.\n// How.\nfunc F() {}\n\n// Apart.\n\n"
            "func (r *R[T]) M() {}\ntype R struct { a int }",
            ["import a", "function F", "docstring F", "method R.M", "class R"],
        ),
        (
            "a.rs",
            "use std::fs;\n/// When.\npub fn f() {}\nimpl<T> S<T> { fn m(&self) {} }\n"
            "mod q { fn z() {} }",
            ["import a", "function f", "docstring f", "method S.m", "function q.z"],
        ),
        (
            "A.java",
            "import a.B;\n/** When. */\npublic class A { A() {} class In { void z() {} } }",
            ["import A", "class A", "docstring A", "method A.A", "class A.In", "method A.In.z"],
        ),
        (
            "a.c",
            "#include <a.h>\n/* When. */\nstatic int *f(int a) { return 0; }\n"
            "typedef struct { int b; } T;\nstruct S *s;",
            ["import a", "function f", "docstring f", "class T", "code a"],
        ),
        (
            "a.cpp",
            "namespace n { class A { void m() {} }; void A::q() {}\n"
            "template<class T> T f(T a) { return a; } }",
            ["class n.A", "method n.A.m", "method n.A.q", "function n.f"],
        ),
    ],
)  # fmt: skip
def test_other_languages(file: str, source: str, wanted: list[str]) -> None:
    language = LANGUAGES[Path(file).suffix]
    pytest.importorskip(f"tree_sitter_{language.replace('tsx', 'typescript')}")
    chunks = chunk_code(source, file)
    assert names(chunks) == wanted
    assert all("When." in c.text for c in chunks if c.kind is ChunkKind.DOCSTRING and c.line > 1)


def test_a_file_with_errors_and_one_without_code_are_read() -> None:
    broken = chunk_code("def f(:\n    return 1\n\ndef g():\n    return 2\n", "a.py")
    assert "function a.g" in names(broken)
    assert chunk_code("", "a.py") == [] and chunk_code("# only words\n", "a.py") == []
    assert names(chunk_code("x = " + "(" * 3000 + ")" * 3000, "a.py")) == ["code a"]


def test_passages_have_name_kind_and_file_long_ones_are_cut_and_same_names_are_numbered() -> None:
    """Lines of 6 characters with their ends; two fill a piece, and only a longer one is cut."""
    texts = ("a = 1\nb = 2\nc = 3", "a_long_line\nd", "twelve chars", "thirteen char")
    chunks = [Chunk(ChunkKind.FUNCTION, "f", "a.py", 1, text) for text in texts]
    others = [Chunk(kind, "f", "b/a.py", 1, "x") for kind in ChunkKind]
    assert [(one.id, one.title) for one in as_passages(others)] == [
        ("b/a.py::f", "f (function, b/a.py)"), ("b/a.py::f#2", "f (class, b/a.py)"),
        ("b/a.py::f#3", "f (method, b/a.py)"), ("b/a.py::f:import", "f (import, b/a.py)"),
        ("b/a.py::f:docstring", "f (docstring, b/a.py)"), ("b/a.py::f:code", "f (code, b/a.py)"),
    ]  # fmt: skip
    made = as_passages(chunks, 12)
    assert [(passage.id, passage.text) for passage in made] == [
        ("a.py::f", "a = 1\nb = 2"), ("a.py::f#2", "c = 3"),
        ("a.py::f#3", "a_long_line"), ("a.py::f#4", "d"), ("a.py::f#5", "twelve chars"),
        ("a.py::f#6", "thirteen cha"), ("a.py::f#7", "r"),
    ]  # fmt: skip


def test_folder_is_read_without_hidden_files_and_an_empty_one_is_a_problem(tmp_path: Path) -> None:
    for name in ("pkg/b.py", "pkg/a.py", "pkg/.venv/b.py", "node_modules/c.js", "read.me"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def f(): pass")
    problems = Problems()
    found = read_code_folder(tmp_path, problems)
    assert [p.id for p in found] == ["pkg/a.py::pkg.a.f", "pkg/b.py::pkg.b.f"]
    assert not problems.found
    assert read_code_folder(tmp_path / "node_modules", problems) != []
    (tmp_path / "empty").mkdir()
    assert read_code_folder(tmp_path / "empty", problems) == []
    (tmp_path / "notes.txt").write_text("no code")  # it ended in a traceback
    assert read_code_folder(tmp_path / "notes.txt", problems) == []
    assert all("holds no source code" in str(one) for one in problems.found)
    assert len(problems.found) == 2
    assert [p.id for p in read_code_folder(tmp_path / "pkg/a.py", problems)] == ["a.py::a.f"]


def test_missing_grammar_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    load_grammar.cache_clear()
    monkeypatch.setitem(sys.modules, "tree_sitter_python", None)
    with pytest.raises(ConfigError, match=r"searchrl-retrieval\[code\]"):
        chunk_code("def f(): pass", "a.py")


def test_prose_is_cut_between_sentences() -> None:
    text = "The hall opens at nine. It closes at five! Dr. Smith has a key. Ask him first, please."
    whole = [Passage("short", "One sentence.", "A"), Passage("long", text, "B")]
    made = list(chunk_passages(whole, 45))
    assert [p.id for p in made] == ["short", "long#1", "long#2"]
    assert {p.title for p in made[1:]} == {"B"}
    assert made[1].text == "The hall opens at nine. It closes at five!"
    assert made[2].text == "Dr. Smith has a key. Ask him first, please."
    # The limit falls behind "Dr."; a shorter piece ends with the sentence before.
    text = "We went to the town of Elm and met there Dr. Smith. He was kind."
    assert [p.text for p in chunk_passages([Passage("a", "It rained. " + text)], 58)] == [
        "It rained.",
        "We went to the town of Elm and met there Dr. Smith.",
        "He was kind.",
    ]
    assert list(chunk_passages(whole[:1], 40)) == whole[:1]
    with pytest.raises(ConfigError, match="at least 40"):
        list(chunk_passages(whole, 39))


def test_code_and_long_texts_become_an_index(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "hours.py").write_text(PYTHON)
    texts = tmp_path / "corpus.jsonl"
    texts.write_text(json.dumps({"id": "t", "text": "One sentence of words. " * 20}))
    line = ["--plugin", "searchrl_retrieval", "index", "build", "--out", str(tmp_path / "i")]
    line += ["--code", str(tmp_path / "src"), "--corpus", str(texts), "--max-chars", "100"]
    shown = CliRunner().invoke(main, [*line, "--json"])
    facts = json.loads(shown.output)
    assert facts["count"] == 5 + 11
    flags = ["--corpus", str(texts), "--code", str(tmp_path / "src"), "--max-chars", "100"]
    assert facts["sources"] == flags
    found = CliRunner().invoke(
        main, [*line[:2], "retrieve", "when does a hall open", "--index", str(tmp_path / "i")]
    )
    assert "1. hours.opens" in found.output
