"""`searchrl retrieve-eval` as a user types it, and as docs/how-to/retrieval.md shows it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from judged_toy import write_beir, write_pool
from searchrl_retrieval.commands.retrieve_eval import Contender, choose_columns, read_contenders

from searchrl import ConfigError
from searchrl.cli import main

pytest.importorskip("ir_measures")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "retrieval.md"


def call(*words: object) -> Result:
    line = ["--plugin", "searchrl_retrieval", "retrieve-eval", *map(str, words)]
    return CliRunner().invoke(main, line)


def figures(*words: object) -> dict[str, Any]:
    result = call(*words, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def complaint(*words: object) -> str:
    result = call(*words)
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.exception
    return result.stderr


def test_json_has_the_figures_by_retriever_and_the_differences_by_pair(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "beir")
    rows = tmp_path / "rows.jsonl"
    found = figures(folder, "--retriever", "bm25", "--retriever", "empty", "--per-query", rows)
    assert list(found["retrievers"]) == ["bm25", "empty"]
    keys = {f"{name}@{k}" for name in ("ndcg", "recall", "mrr", "map") for k in (5, 10, 100)}
    for metrics in found["retrievers"].values():
        assert set(metrics) == keys and {one["n"] for one in metrics.values()} == {3}
    bm25, empty = (found["retrievers"][name]["ndcg@10"] for name in ("bm25", "empty"))
    assert bm25["value"] > 0.8 and empty["value"] == 0
    (pair,) = found["paired"]
    assert (pair["first"], pair["second"]) == ("bm25", "empty")
    assert pair["figures"]["ndcg@10"]["value"] == pytest.approx(bm25["value"])
    assert found["collection"]["questions"] == 3 and found["collection"]["passages"] == 6
    written = [json.loads(line) for line in rows.read_text("utf-8").splitlines()]
    assert [(row["query_id"], row["retriever"]) for row in written[:3]] == [
        ("q1", "bm25"), ("q1", "empty"), ("q2", "bm25"),
    ]  # fmt: skip
    assert written[2]["relevant"] == {"d4": 2, "d5": 1} and written[2]["found"][0] == "d4"
    assert written[2]["mrr@10"] == 1 and written[3]["mrr@10"] == 0 and written[3]["found"] == []


def test_a_pool_has_support_recall_and_all_gold_and_the_cutoffs_that_were_asked_for(
    tmp_path: Path,
) -> None:
    found = figures(write_pool(tmp_path / "pool"), "--retriever", "bm25", "--k", 2, "--k", 1)
    metrics = found["retrievers"]["bm25"]
    names = ("ndcg", "recall", "mrr", "map", "support_recall", "all_gold")
    assert set(metrics) == {f"{name}@{k}" for name in names for k in (1, 2)}
    # The first question finds both of its passages, the second one of two.
    assert metrics["support_recall@2"]["value"] == 0.75 and metrics["all_gold@2"]["value"] == 0.5
    assert metrics["recall@2"] == metrics["support_recall@2"]
    dev = figures(tmp_path / "pool", "--retriever", "bm25", "--split", "dev", "--k", 2)
    one = dev["retrievers"]["bm25"]["all_gold@2"]
    assert (one["value"], one["low"], one["n"]) == (0, 0, 1) and one["high"] > 0.7


def test_the_table_has_a_row_for_each_retriever_and_for_each_pair(tmp_path: Path) -> None:
    folder = write_pool(tmp_path / "pool")
    labelled = ("--retriever", "bm25", "--retriever", "plain=bm25", "--retriever", "empty")
    result = call(folder, *labelled, "--set", "plain.title_weight=0")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == "pool: 2 questions, 6 passages".split()
    found = [f"{name}@{k}" for name in ("support_recall", "all_gold") for k in (5, 10, 100)]
    head = ["ndcg@10", "[95", "%]", "mrr@10", "map@10", *found]
    assert lines[2] == ["retriever", *head, "ms", "a", "query"]
    assert [line[0] for line in lines[3:6]] == ["bm25", "plain", "empty"]
    pairs = [tuple(line[:2]) for line in lines[-3:]]
    assert pairs == [("bm25", "plain"), ("bm25", "empty"), ("plain", "empty")]
    assert "questions without a known gold passage, left out: 1" in result.stdout
    assert choose_columns(["ndcg@3", "mrr@3", "ndcg@1", "recall@3", "recall@1"]) == [
        "ndcg@3", "mrr@3", "map@3", "recall@3", "recall@1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--retriever", "bm52"), "Did you mean 'bm25'"),
        (("--retriever", "bm25", "--set", "bm25.titel_weight=1"), "title_weight"),
        (("--retriever", "bm25", "--set", "bm52.k1=1"), "is for none of the retrievers"),
        (("--retriever", "bm25", "--split", "tset"), "has no qrels/tset.tsv; its splits: test"),
        (("--retriever", "bm25", "--per-query", "nowhere/x.jsonl"), "there is no folder"),
    ],
)
def test_slips_are_named_before_anything_is_searched(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in complaint(write_beir(tmp_path / "beir"), *words)


def commands() -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.startswith("searchrl retrieve-eval ")]


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_page_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_beir(tmp_path / "data" / "scifact")
    write_pool(tmp_path / "data" / "pool")
    monkeypatch.chdir(tmp_path)
    result = call(*shlex.split(command)[2:])
    assert result.exit_code == 0, result.output


def test_folders_that_hold_nothing_judged_are_named_with_what_was_expected(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert str(empty) in complaint(empty, "--retriever", "bm25")
    assert "there is nothing at" in complaint(tmp_path / "none", "--retriever", "bm25")
    folder = write_beir(tmp_path / "beir")
    with open(folder / "qrels" / "test.tsv", "a", encoding="utf-8") as file:
        file.write("q1\td1\tvery\nq9\td1\t1\n")
    said = complaint(folder, "--retriever", "bm25")
    assert "test.tsv:7: expected query-id, corpus-id and score" in said
    (folder / "qrels" / "test.tsv").write_text("q9 0 d1 1\n", "utf-8")
    assert "judges 'q9', which is no query" in complaint(folder, "--retriever", "bm25")


def test_without_ir_measures_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    said = complaint(write_beir(tmp_path / "beir"), "--retriever", "bm25")
    assert "pip install 'searchrl-retrieval[eval]'" in said


def test_settings_go_to_one_retriever_or_to_all_and_the_nearer_counts() -> None:
    found = read_contenders(["bm25", "plain=bm25"], ["plain.k1=3", "retriever.k1=2"])
    assert found == {"bm25": Contender("bm25", {"k1": 2}), "plain": Contender("bm25", {"k1": 3})}
    for names, said in (
        (["bm25", "bm25"], "a label of its own"),
        (["retriever=bm25"], "other than 'retriever'"),
        (["=bm25"], "cannot use --retriever"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_contenders(names, [])
    with pytest.raises(ConfigError, match="expected bm25.KEY=VALUE"):
        read_contenders(["bm25"], ["bm25=3"])
