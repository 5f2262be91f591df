"""`searchrl eval --policy endpoint:URL`: an API model in the same table, and what it may cost."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import call, complaint, succeed
from fixtures.openai_server import Fault, OpenAIServer, search_once

from searchrl.run_folder import Run

KEY = "sk-never-shown-77"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "replies.sqlite"


def flags(server: OpenAIServer, cache: Path, num_tasks: int = 6) -> list[str]:
    words = ["eval", "--policy", f"endpoint:{server.url}", "--model", "toy-1"]
    words += ["--set", f"endpoint.cache={cache}", "--set", "endpoint.max_retries=0"]
    return [*words, "--num-tasks", str(num_tasks)]


def test_an_api_model_stands_in_the_same_table_and_a_second_run_is_free(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCHRL_API_KEY", KEY)
    with OpenAIServer(search_once) as server:
        folder = tmp_path / "run"
        first = succeed(*flags(server, cache), "--json", "--run-dir", folder)
        assert len(server.bodies) == 12
        assert "endpoint: 12 calls (0 repeated), 0 replies from the cache" in first.stderr
        second = succeed(*flags(server, cache), "--json")
        assert len(server.bodies) == 12
        assert "endpoint: 0 calls (0 repeated), 12 replies from the cache" in second.stderr
        table = succeed(*flags(server, cache))
    metrics = json.loads(first.stdout)
    assert json.loads(second.stdout) == metrics
    scripted = json.loads(
        succeed("eval", "--policy", "scripted", "--num-tasks", "6", "--json").stdout
    )
    assert set(metrics) == set(scripted)
    assert metrics["format"]["value"] == metrics["searched"]["value"] == 1.0
    assert f"toy-1 at {server.url} on regulations" in table.stdout
    assert {h["authorization"] for h in server.headers} == {f"Bearer {KEY}"}
    run = Run.open(folder)
    assert run.provenance["endpoint"]["calls"] == 12
    row = next(run.rollouts("eval"))
    assert row["origin"] == "demonstration" and set(row["sampler_logp"]) == {None}
    assert row["turns"][0]["text"].endswith("</search>")
    written = "".join(p.read_text("utf-8", "replace") for p in folder.rglob("*") if p.is_file())
    for text in (written, first.output, second.output, table.output):
        assert KEY not in text


def test_an_outage_is_unscored_and_counted(cache: Path) -> None:
    def answer(body: dict[str, Any]) -> str | Fault:
        asked = body["messages"][1]["content"]
        return Fault(503) if asked.startswith("What") else search_once(body)

    with OpenAIServer(answer) as server:
        lenient = ["--set", "rollout.max_failure_frac=1"]
        result = succeed(*flags(server, cache, 12), "--json", *lenient)
        metrics = json.loads(result.stdout)
        num_failed = sum(b["messages"][1]["content"].startswith("What") for b in server.bodies)
        assert 0 < num_failed < 12
        share = num_failed / 12
        assert metrics["failed"]["value"] == metrics["unscored"]["value"] == pytest.approx(share)
        assert metrics["em"]["n"] == 12 - num_failed
        assert f"{num_failed} of 12 episodes failed and are left out" in result.stderr
        shown = succeed(*flags(server, cache, 12), *lenient).stdout
        assert any(line.startswith("unscored") for line in shown.splitlines())
        strict = call(*flags(server, cache, 12), "--set", "rollout.max_failure_frac=0")
        assert strict.exit_code == 3 and f"{num_failed} of 12 episodes failed" in strict.output
        assert "generation failure of generator" in strict.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "endpoint:http://h/v1"), "needs the name of a model"),
        (("--policy", "endpiont:http://h/v1"), "scripted:NAME or endpoint:URL"),
        (("--policy", "endpoint:http://h", "--model", "m", "--set", "sampling.top_k=5"),
         "--set endpoint.extra.top_k=5"),
        (("--policy", "endpoint:http://h/v1", "--model", "m", "--samples", "2"), "greedy"),
        (("--policy", "scripted", "--against", "endpoint:http://h"), "name an endpoint with"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    text = complaint("eval", *words, "--num-tasks", "1", "--set", f"endpoint.cache={tmp_path}/c")
    assert said in text.replace("\n", " ")
