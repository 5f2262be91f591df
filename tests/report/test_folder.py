"""The folder of a report: what is in its data files, and what may not happen to them."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import succeed
from stored_run import CHESS, HOSTILE, answer, make_row, make_rows, search, write_run

from searchrl.config.packaged import EMBEDDED, find_packaged
from searchrl.core.trajectory import TokenColumns
from searchrl.errors import RunFolderError
from searchrl.report.folder import write_report
from searchrl.report.patterns import find_pattern
from searchrl.run_folder import Run
from searchrl.run_folder.manifest import CHECKSUMS, Manifest

TOKENIZER = Path(f"{find_packaged(EMBEDDED)}/tokenizer.json")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.open(write_run(tmp_path_factory.mktemp("report") / "run"))


def read_data(folder: Path, name: str) -> Any:
    """What a data file gives to the page: its one line calls a function with two texts."""
    text = (folder / "data" / f"{name}.js").read_text("utf-8")
    assert text.startswith("SEARCHRL.give(") and text.endswith(");\n") and text.count("\n") == 1
    given, value = ast.literal_eval(text.removeprefix("SEARCHRL.give").removesuffix(";\n"))
    assert given == name
    return json.loads(value)


def test_the_index_has_one_row_per_rollout_and_the_files_have_the_tokens(run: Run, tmp_path: Path):
    report = write_report([run], tmp_path / "out")
    index = read_data(tmp_path / "out", "index")
    assert report.num_rollouts == index["size"] == 8
    assert {len(column) for column in index["columns"].values()} == {8}
    assert index["scores"]["em"] == [0, 1, 1, 0, 0, None, 1, 0]
    patterns = [index["patterns"][number] for number in index["columns"]["pattern"]]
    assert patterns[2:6] == [
        "2 searches, all gold shown, right",
        "1 search, some gold shown, wrong",
        "no search, wrong",
        "failed: retriever",
    ]
    rows = read_data(tmp_path / "out", "rollouts_0001")
    words = read_data(tmp_path / "out", "words")[0]
    stored = list(run.rollouts())
    for row, one in zip(rows, stored, strict=True):
        assert row["ids"] == one["ids"] and row["turns"] == one["turns"]
        assert len(row["logp"]) == one["authors"].count("M")
        text = "".join(row["texts"].get(str(i), words[str(t)]) for i, t in enumerate(row["ids"]))
        assert text.startswith(one["task"]["question"])


def test_the_push_of_a_step_is_the_sum_over_its_trained_tokens(run: Run, tmp_path: Path):
    write_report([run], tmp_path / "out")
    index = read_data(tmp_path / "out", "index")
    trained = [row for row in run.rollouts("train") if row["advantage"] is not None]
    pushes = [0.01 * abs(r["advantage"]) * r["authors"].count("M") for r in trained]
    assert index["columns"]["pull"][2:5] == pytest.approx(pushes, rel=1e-3)
    assert index["pulls"] == {"0/1": pytest.approx(sum(pushes), rel=1e-3)}


def test_candidates_are_read_as_a_tree_and_what_is_no_node_is_left_out(tmp_path: Path):
    run = Run.open(write_run(tmp_path / "run"))
    node = {"id": "b", "parent": "a", "label": "b edit", "text": "x", "figures": {}}
    for content, nodes in (
        ({"nodes": [node, node | {"figures": {"reward": {"value": "much", "n": 1}}}, 3]}, [node]),
        ([node], []),
        ({}, []),
    ):
        (run.path / "candidates.json").write_text(json.dumps(content), "utf-8")
        write_report([run], tmp_path / "out")
        assert read_data(tmp_path / "out", "run")["runs"][0]["tree"] == nodes


def test_a_clipped_token_pushes_nothing(tmp_path: Path):
    row = make_row("s/p/0", CHESS, [answer("x")], advantage=2.0)
    own = [place for place, author in enumerate(row["authors"]) if author == "M"]
    rows = [row, make_row("s/p/1", CHESS, [answer("x")], advantage=2.0, clipped=own[:2])]
    run = Run.open(write_run(tmp_path / "run", {"step_000001": rows}))
    write_report([run], tmp_path / "out")
    whole, less = read_data(tmp_path / "out", "index")["columns"]["pull"]
    assert less == pytest.approx(whole * (len(own) - 2) / len(own), rel=1e-3)


def test_a_demonstration_pushes_with_the_weight_of_each_token(tmp_path: Path):
    row = make_row("s/p/0", CHESS, [answer("x")], advantage=2.0, origin="demonstration")
    own = [author == "M" for author in row["authors"]]
    row |= {"sampler_logp": [None] * len(own), "weight": [0.25 if mine else None for mine in own]}
    write_report([Run.open(write_run(tmp_path / "run", {"step_000001": [row]}))], tmp_path / "out")
    assert read_data(tmp_path / "out", "index")["columns"]["pull"] == [0.5 * sum(own)]
    (shown,) = read_data(tmp_path / "out", "rollouts_0001")
    assert shown["origin"] == "demonstration" and shown["weight"] == [0.25] * sum(own)


def test_segments_are_shown_with_their_reasons_and_told_in_a_sentence(tmp_path: Path):
    row = make_row("s/p/0", CHESS, [search("q", ["art-9"]), answer("x")])
    start = row["turn"].index(1)
    row |= {"segments": [0, start], "segment_reasons": ["first", "edited"]}
    older = make_row("s/p/1", CHESS, [answer("x")])
    del older["segments"]
    report = write_report(
        [Run.open(write_run(tmp_path / "run", {"step_000001": [row, older]}))], tmp_path / "out"
    )
    shown = [one["segments"] for one in read_data(tmp_path / "out", "rollouts_0001")]
    assert shown == [[[0, "first"], [start, "edited"]], [[0, ""]]]
    told = f"2 requests in 2 segments of {len(row['ids']) / 2:,.0f} tokens on average"
    assert (
        f"rollouts of several segments: {told}; why they begin: 1 first, 1 edited" in report.notes
    )


def test_runs_without_a_task_in_common_are_told_so(run: Run, tmp_path: Path):
    files = make_rows()
    for row in (row for rows in files.values() for row in rows):
        row["task"] = row["task"] | {"id": f"{row['task']['id']}-b"}
    other = Run.open(write_run(tmp_path / "other", files))
    (note,) = [n for n in write_report([run, other], tmp_path / "r").notes if "in common" in n]
    assert "nothing can be compared" in note


def test_what_a_run_says_is_never_code_or_markup(run: Run, tmp_path: Path):
    report = write_report([run], tmp_path / "out")
    assert "document.title" not in report.page.read_text("utf-8")
    rows = read_data(tmp_path / "out", "rollouts_0001")
    assert rows[2]["drawings"][1]["text"] == HOSTILE  # as it was, inside of a text
    odd = "');alert(1);//\\' \u2028 </script> \ud800"
    strange = make_row("s/p/0", CHESS, [answer("x")], final_answer=odd)
    folder = write_run(tmp_path / "run", {})
    line = json.dumps(strange) + "\n"
    (folder / "rollouts" / "step_000001.jsonl").write_text(line, "utf-8")
    write_report([Run.open(folder)], tmp_path / "other")
    (row,) = read_data(tmp_path / "other", "rollouts_0001")
    assert row["final_answer"] == odd


def test_a_folder_with_something_else_is_left_alone(run: Run, tmp_path: Path):
    taken = tmp_path / "mine"
    taken.mkdir()
    (taken / "thesis.txt").write_text("years of work")
    with pytest.raises(RunFolderError, match="mine' is not empty and holds no report; .* --out"):
        write_report([run], taken)
    assert [file.name for file in taken.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("turns", "more", "pattern"),
    [
        ([search("q", ["art-9"]), answer("x")], {}, "1 search, no gold shown, wrong"),
        ([search("q", [])], {"stop_reason": "turn_limit"},
         "1 search, no gold shown, no answer: turns used up"),
        ([answer("x")], {"scores": {"f1": 0.4}}, "no search, partly right"),
        ([answer("x")], {"unscored": "the judge is away"}, "no search, not scored"),
        ([answer("x")], {"scores": {"style": 1.0}}, "no search, ended"),
    ],
)  # fmt: skip
def test_patterns_say_searches_evidence_and_end(turns: Any, more: Any, pattern: str):
    assert find_pattern(make_row("s/p/0", CHESS, turns, **more)) == pattern


def test_every_column_of_an_update_is_stored(run: Run):
    """A column that is added to `TokenColumns` has to reach the rows, and so the page."""
    assert set(TokenColumns._fields) <= set(next(run.rollouts("train")))


def test_what_can_be_read_of_a_damaged_run_is_shown_and_the_damage_is_said(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    file = folder / "metrics.jsonl"
    file.write_bytes(file.read_bytes().replace(b"1.5", b"9.5"))
    write_report([Run.open(folder)], tmp_path / "out")
    (run,) = read_data(tmp_path / "out", "run")["runs"]
    assert len(run["faults"]) == 1 and "metrics.jsonl" in run["faults"][0]
    assert run["curves"]["em"]["after"][0][1] == 0.9


def test_a_damaged_tokenizer_is_passed_over_and_said(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    (folder / "policy").mkdir()
    file = folder / "policy" / "tokenizer.json"
    shutil.copy(TOKENIZER, file)
    (folder / "policy" / "config.json").write_text("{}")
    Manifest.of(folder / "policy", {}).write(folder / "policy" / CHECKSUMS)
    said = succeed("inspect", folder, "--out", tmp_path / "out").stdout
    assert "is damaged" not in said
    file.write_bytes(file.read_bytes().replace(b'"the"', b'"eht"'))
    said = succeed("inspect", folder, "--out", tmp_path / "out").stdout
    assert f"note: '{file}' is damaged" in said and "its content is not what was" in said
    words = read_data(tmp_path / "out", "words")[0]
    assert any("the" in word for word in words.values()) and "eht" not in words.values()
    file.write_text("no tokenizer")
    Manifest.of(folder / "policy", {}).write(folder / "policy" / CHECKSUMS)
    said = succeed("inspect", folder, "--out", tmp_path / "out").stdout
    assert f"note: '{file}' is damaged: it is no tokenizer" in said
