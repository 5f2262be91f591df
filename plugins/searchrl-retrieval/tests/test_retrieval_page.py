"""docs/how-to/retrieval.md: its commands run, and its keys and flags are those of the command.

The core's tests of its docs have no plugin; here every command of the page is run as printed.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from judged_toy import write_beir, write_pool

from searchrl.cli import main

pytest.importorskip("ir_measures")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "retrieval.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


def commands() -> list[str]:
    lines = "".join(blocks("bash")).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.startswith("searchrl retrieve-eval ")]


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_page_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_beir(tmp_path / "data" / "scifact")
    write_pool(tmp_path / "data" / "pool")
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    result = CliRunner().invoke(main, ["--plugin", "searchrl_retrieval", *words])
    assert result.exit_code == 0, result.output


def test_the_object_on_the_page_is_that_of_the_command(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "beir")
    words = [str(folder), "--retriever", "bm25", "--retriever", "plain=bm25", "--json"]
    result = CliRunner().invoke(main, ["--plugin", "searchrl_retrieval", "retrieve-eval", *words])
    found = json.loads(result.stdout)
    (shown,) = [json.loads(block) for block in blocks("json") if "retrievers" in block]
    assert set(shown) == set(found)
    assert set(shown["collection"]) == set(found["collection"])
    assert set(shown["seconds"]["bm25"]) == set(found["seconds"]["bm25"])
    assert set(shown["paired"][0]) == set(found["paired"][0])
    metric = shown["retrievers"]["bm25"]["ndcg@10"]
    assert set(metric) == set(found["retrievers"]["bm25"]["ndcg@10"])
    # The two rank three questions alike: there is no interval.
    pair = shown["paired"][0]["figures"]["ndcg@10"]
    assert set(pair) - {"low", "high"} == set(found["paired"][0]["figures"]["ndcg@10"])


def test_every_figure_and_flag_is_on_the_page() -> None:
    from searchrl_retrieval.commands.retrieve_eval import retrieve_eval
    from searchrl_retrieval.evaluation.measures import ALL_GOLD, MEASURES, SUPPORT_RECALL

    text = PAGE.read_text("utf-8")
    for name in (*MEASURES, SUPPORT_RECALL, ALL_GOLD):
        assert f"| `{name}@k` |" in text
    flags = [flag for one in retrieve_eval.params for flag in one.opts if flag.startswith("--")]
    missing = [flag for flag in flags if f"`{flag}" not in text and f" {flag} " not in text]
    assert not missing
