"""The page on plan-then-search and examples/dag_r1_distill_7b.yaml: flags, keys, commands."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from exa_answers import searching
from fixtures.openai_server import OpenAIServer
from searchrl_dag.exa.client import KEY_ENV

from searchrl.cli import main
from searchrl.data import Problems, load_corpus
from searchrl.envs.corpus import DEMO_FOLDER
from searchrl.retrieval import BM25Retriever

REPO = Path(__file__).resolve().parents[3]
PAGE = REPO / "docs" / "how-to" / "plan-then-search.md"
EXAMPLE = REPO / "examples" / "dag_r1_distill_7b.yaml"
PACKAGES = ("searchrl_dag", "searchrl_judge", "searchrl_wandb")


def commands() -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("searchrl ")]


def call(*words: str) -> str:
    """The output of a command with these packages."""
    loaded = [word for package in PACKAGES for word in ("--plugin", package)]
    result = CliRunner().invoke(main, [*loaded, *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_example_resolves_without_a_key_a_gpu_or_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KEY_ENV)
    said = call("train", "--config", str(EXAMPLE), "--dry-run", "--details")
    assert "max_nodes: 8" in said and "name: multisource_qu" in said
    assert not list(tmp_path.iterdir())


def test_commands_that_train_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(REPO / "examples")
    shutil.copy(DEMO_FOLDER / "questions.jsonl", tmp_path / "hotpot.jsonl")
    shown = [shlex.split(command)[1:] for command in commands() if " train " in command]
    assert shown
    for words in shown:
        call(*words, *(() if "--dry-run" in words else ("--dry-run",)))


def test_commands_that_search_record_and_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record, replay = (shlex.split(command)[1:] for command in commands() if " eval " in command)

    def figures(output: str) -> list[str]:
        return [
            line for line in output.splitlines() if re.match(r"\s*(em|format|searched)\b", line)
        ]

    town = load_corpus(DEMO_FOLDER / "corpus.jsonl", Problems())
    with OpenAIServer(searching(BM25Retriever(town))) as server:
        inner = f"retriever.inner={{name: exa, url: '{server.url}'}}"
        small = ("--set", inner, "--num-tasks", "3")
        recorded = call(*record, *small)
        num_asked = len(server.bodies)
        assert num_asked >= 3
        monkeypatch.delenv(KEY_ENV)
        assert figures(call(*replay, *small)) == figures(recorded) != []
        assert len(server.bodies) == num_asked
