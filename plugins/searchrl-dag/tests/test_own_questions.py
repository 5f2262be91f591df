"""The environment `multisource_questions`: own questions in JSON and JSONL, over named sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from exa_answers import sent
from fixtures.openai_server import Fault, OpenAIServer
from searchrl_dag.exa.client import KEY_ENV

import searchrl
from searchrl import ConfigError
from searchrl.envs.corpus import DEMO_FOLDER
from searchrl.testing import check_plugin

MODULE = "searchrl_dag"
ROWS = [
    {"id": "1", "question": "Who keeps the lighthouse of Skarn?", "answer": "Ida Veen"},
    {"id": "2", "question": "Where was the keeper born?", "answer": "Orm", "level": "hard"},
]
PLAN = """<think>Two things.</think>
<search>
Nodes:
A: keeper of the lighthouse of Skarn (General)
B: birthplace of {A} (News)
C: lighthouses (Academy)
Edges:
A -> B
</search>"""


def web(body: dict[str, Any]) -> Fault:
    """A web that knows a few things, each under one category."""
    known = {
        None: ("https://skarn.example", "The lighthouse is kept by Ida Veen."),
        "news": ("https://news.example", "Ida Veen was born in Orm."),
        "research paper": ("https://papers.example", "Lighthouses are towers."),
    }
    address, text = known[body.get("category")]
    return sent({"results": [{"url": address, "id": address, "title": "", "highlights": [text]}]})


def test_a_plan_over_the_web_finds_what_a_parent_found_first(tmp_path: Path) -> None:
    questions = tmp_path / "questions.json"
    questions.write_text(json.dumps(ROWS), "utf-8")
    with OpenAIServer(web) as server:
        # Exa as all three sources, as in the example configuration.
        exa = {"name": "exa", "url": server.url}
        env = searchrl.make_env(
            "multisource_questions",
            plugins=[MODULE],
            questions=str(questions),
            test_frac=0.0,
            retriever=exa,
            news={**exa, "category": "news"},
            academic={**exa, "category": "research paper"},
        )
        prompt, info = env.reset(options={"split": "train", "index": 1})
        assert prompt == ROWS[1]["question"] and info["task"].difficulty == "hard"
        observation, *_, step = env.step(PLAN)
        for text in ("kept by Ida Veen", "born in Orm", "are towers"):
            assert text in observation
        assert len(step["passages"]) == 3
        _, reward, terminated, _, _ = env.step("<think>B says so.</think><answer> Orm </answer>")
        assert reward == 1.0 and terminated
    said = {one.get("category"): one["query"] for one in server.bodies}
    assert "Ida Veen" in said["news"] and "{A}" not in said["news"]
    assert said["research paper"] == "lighthouses"


def test_a_source_without_its_key_is_told_before_any_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_ENV)
    config = {
        "env": {"name": "multisource_questions", "news": "exa"},
        "plugins": [MODULE],
        "policy": "scripted",
        "eval": {"num_tasks": 1},
    }
    with pytest.raises(ConfigError, match=f"retriever exa: .*{KEY_ENV} is not set"):
        searchrl.evaluate(config)


def test_only_some_of_the_questions_are_used(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "id": str(i), "level": "hard" if i % 3 else "easy"} for i in range(30)]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    town = tmp_path / "town.jsonl"
    town.write_text('{"id": "a", "text": "Skarn"}', "utf-8")

    def count(**settings: Any) -> int:
        given = {"questions": str(path), "corpus": str(town), "test_frac": 0.0, **settings}
        env: Any = searchrl.make_env("multisource_questions", plugins=[MODULE], **given)
        return int(env.unwrapped.num_tasks("train"))

    assert count() == 30 and count(difficulty="hard") == 20 and count(num_questions=4) == 4
    assert count(difficulty="easy", num_questions=100) == 10
    with pytest.raises(ConfigError, match="no question has the difficulty 'hart'. Did you mean"):
        count(difficulty="hart")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"protocol": "think-search-answer"}, "env multisource_questions needs plans"),
        ({"questions": str(DEMO_FOLDER / "questions.jsonl")}, "'corpus' is not"),
        ({"news": {"name": "exe"}}, "Did you mean 'exa'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        searchrl.make_env("multisource_questions", plugins=[MODULE], **settings)


@pytest.mark.thorough
def test_it_keeps_every_criterion() -> None:
    (report,) = check_plugin("multisource_questions", kind="env", plugins=[MODULE])
    assert report.is_good, report.failed
