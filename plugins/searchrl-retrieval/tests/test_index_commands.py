"""`searchrl index` and `searchrl retrieve`: what they print, refuse and leave behind."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from searchrl_retrieval.index.build import CACHE_VARIABLE

from searchrl.cli import main

ROWS = [
    {"id": "a", "title": "Elm Hall", "text": "The hall closes at 16:45."},
    {"id": "b", "title": "Otters", "text": "Otters swim in rivers."},
]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def index(tmp_path: Path, corpus: Path) -> Path:
    run("index", "build", "--corpus", corpus, "--out", tmp_path / "i")
    return tmp_path / "i"


def run(*words: object, code: int = 0, stdin: str = "") -> str:
    line = ["--plugin", "searchrl_retrieval", *map(str, words)]
    result = CliRunner().invoke(main, line, input=stdin)
    assert result.exit_code == code, result.output
    return result.output


def test_an_index_is_built_searched_and_described(tmp_path: Path, corpus: Path) -> None:
    shown = run("index", "build", "--corpus", corpus, "--out", tmp_path / "i")
    assert "bm25s, 2 passages" in shown and "title_weight: 6" in shown
    assert f"searchrl retrieve QUERY --index {tmp_path}/i" in shown
    assert "1. Otters [b]" in run("retrieve", "otter", "--index", tmp_path / "i")
    facts = json.loads(run("index", "info", tmp_path / "i", "--verify", "--json"))
    assert facts["count"] == 2 and facts["sources"] == ["--corpus", str(corpus)]
    assert facts["settings"] == {"title_weight": 6, "k1": 1.2, "b": 0.75, "language": "english"}


def test_settings_of_the_index_hold_when_it_is_searched(tmp_path: Path, corpus: Path) -> None:
    index = tmp_path / "i"
    run("index", "build", "--corpus", corpus, "--out", index, "--set", "retriever.language=none")
    assert "nothing found" in run("retrieve", "otter", "--index", index)
    shown = run("retrieve", "x", "--index", index, "--set", "retriever.k1=2", code=2)
    wanted = f"searchrl index build --corpus {corpus} --retriever bm25s --out {index}"
    assert f"was built with k1=1.2, not 2.0. Build it again: {wanted}" in shown
    assert "--set retriever.k1=2.0 " in shown and 'retriever.language="none"' in shown


def test_results_as_json_for_queries_from_standard_input(corpus: Path) -> None:
    shown = run("retrieve", "--corpus", corpus, "--json", stdin="otters\n\nzebra\n")
    first, second = json.loads(shown)["results"]
    assert first["query"] == "otters" and second == {"query": "zebra", "passages": []}
    assert [(p["id"], p["title"], p["text"]) for p in first["passages"]] == [
        ("b", "Otters", "Otters swim in rivers.")
    ]


def test_wrong_flags_say_what_to_do(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "i"
    build = ("index", "build", "--corpus", corpus, "--out", out)
    assert "'bm25' keeps no index" in run(*build, "--retriever", "bm25", code=2)
    assert "less than or equal to 1" in run(*build, "--set", "retriever.b=2", code=2)
    assert "expected --set retriever.KEY=VALUE" in run(*build, "--set", "b=1", code=2)
    assert not out.exists()
    assert "--index DIR or --corpus PATH" in run("retrieve", "x", code=2)
    assert "-k must be at least 1" in run("retrieve", "x", "-k", 0, "--corpus", corpus, code=2)
    assert "searchrl index build --corpus CORPUS" in run("index", "info", out, code=2)


def test_passages_are_added_once(index: Path, corpus: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text('{"id": "c", "title": "Zork", "text": "A game."}\n')
    assert "3 passages" in run("index", "add", index, "--corpus", more)
    assert "1. Zork [c]" in run("retrieve", "game", "--index", index)
    shown = run("index", "add", index, "--corpus", more, code=2)
    assert "have the same id 'c'; each needs its own" in shown
    facts = json.loads(run("index", "info", index, "--json"))
    assert facts["count"] == 3 and facts["sources"][1::2] == [str(corpus), str(more)]


@pytest.mark.parametrize("settings", [{"b": ""}, {"index": "x"}, {"title_weight": math.inf}])
def test_settings_that_a_stranger_put_into_a_manifest_are_no_traceback(
    index: Path, corpus: Path, settings: dict[str, Any]
) -> None:
    file = index / "manifest.json"
    facts = json.loads(file.read_bytes())
    facts["settings"] |= settings
    del facts["sha256"]
    plain = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    file.write_text(json.dumps(facts | {"sha256": hashlib.sha256(plain.encode()).hexdigest()}))
    said = run("index", "add", index, "--corpus", corpus, code=2)
    assert "Traceback" not in said and str(next(iter(settings))) in said


def test_kept_indexes_are_listed_the_damaged_ones_too(tmp_path: Path, corpus: Path) -> None:
    assert "0 kept in" in run("index", "info")
    for name in ("one", "two"):
        run("index", "build", "--corpus", corpus, "--out", tmp_path / "cache" / name)
    (tmp_path / "cache" / "two" / "manifest.json").write_text("{")
    rows: list[dict[str, Any]] = json.loads(run("index", "info", "--json"))["indexes"]
    assert [row["folder"] for row in rows][1:] == ["two"]
    assert rows[0]["count"] == 2 and "is damaged" in rows[1]["fault"]


def test_a_bad_row_in_one_of_several_files_leaves_no_index(tmp_path: Path, corpus: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "c", "text": "Fine."}\n{"id": "d"}\n')
    out = tmp_path / "i"
    shown = run("index", "build", "--corpus", corpus, "--corpus", bad, "--out", out, code=2)
    assert "bad.jsonl:2" in shown and "neither 'text' nor 'contents'" in shown
    assert "no index" in run("retrieve", "x", "--index", out, code=2)
