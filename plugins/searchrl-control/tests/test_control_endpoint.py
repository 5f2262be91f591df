"""A model behind an endpoint as the reformulator, and whom a run of somebody else may ask."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.reformulate import writer

from searchrl import EndpointFailure
from searchrl.api_client import Request
from searchrl.cli import main

URL = "http://localhost:1/v1"


@pytest.mark.parametrize("reply", ["bees in spring", "  "])
def test_what_the_model_writes_is_searched_and_nothing_is_an_error(
    toy: dict[str, Any], monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    asked: list[Any] = []

    class Client:
        def __init__(self, *given: Any) -> None:
            asked.append(given[:2])

        def complete(self, request: Request) -> Any:
            asked.append(request.messages[-1].content)
            return SimpleNamespace(text=reply)

    monkeypatch.setattr(writer, "Client", Client)
    own = {"reformulator": "endpoint", "url": URL, "endpoint_model": f"model of {reply}"}
    env = RetrievalControlEnv(**toy, **own)
    env.reset(options={"split": "train", "index": 0})
    env.step(0)
    if not reply.strip():
        with pytest.raises(EndpointFailure, match="wrote nothing"):
            env.step(env.action_names.index("Broad"))
        return
    *_, info = env.step(env.action_names.index("Broad"))
    assert (info["query"], info["passages"][0].id) == ("bees in spring", "bees")
    assert asked[0] == (URL, f"model of {reply}")
    assert len(asked) == 2 and "where does salt come from" in asked[1]


EVIL = {"reformulator": "endpoint", "endpoint_model": "m", "url": "http://127.0.0.1:9/evil"}


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["--plugin", "searchrl_control", *map(str, words)])


def test_a_training_of_somebody_else_asks_nobody_and_its_text_is_shown_as_text(
    tmp_path: Path,
) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step_000000.safetensors").write_bytes(b"")
    for settings, said in (
        ({"envs": [{**EVIL}]}, "say that you mean it: --set env.url=ADDRESS"),
        ({"network": {"name": "\x1b[31mx"}}, "is damaged"),
    ):
        told = {"settings": settings, "space": {}}
        (tmp_path / "config.json").write_text(json.dumps(told))
        for words in (("compare", tmp_path), ("train", "--resume", tmp_path)):
            result = call("control", *words)
            assert result.exit_code == 2 and "\x1b" not in result.output
            assert said in result.output
