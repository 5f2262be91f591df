"""A model behind an endpoint as the reformulator, and whom a run of somebody else may ask."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.reformulate.writer import ask_endpoint

from searchrl import EndpointFailure
from searchrl.api_client import EndpointConfig
from searchrl.cli import main


class Model(BaseHTTPRequestHandler):
    """Writes one query, whatever is asked."""

    prompts: list[str]
    reply: str

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.prompts.append(body["messages"][-1]["content"])
        said = {
            "choices": [{"message": {"content": self.reply}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        }
        raw = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[str, type[Model]]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # replies of the endpoint are kept there
    handler = type("Own", (Model,), {"prompts": [], "reply": "bees in spring"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1", handler
    server.shutdown()
    server.server_close()


def test_what_the_model_writes_is_searched_and_kept(
    toy: dict[str, Any], model: tuple[str, type[Model]], tmp_path: Path
) -> None:
    url, handler = model
    settings = {**toy, "cache": str(tmp_path / "own"), "reformulator": "endpoint"}
    seen = []
    for endpoint in ("first", "first", "second"):
        env = RetrievalControlEnv(**settings, url=url, endpoint_model=endpoint)
        env.world.at.cache_clear()
        env.world.open.cache_clear()
        env.reset(options={"split": "train", "index": 0})
        env.step(0)
        *_, info = env.step(env.action_names.index("Broad"))
        seen.append((info["query"], info["passages"][0].id))
    assert seen == [("bees in spring", "bees")] * 3
    assert len(handler.prompts) == 2  # the second round was kept


def test_a_model_that_writes_nothing_is_an_error_and_no_query(
    model: tuple[str, type[Model]],
) -> None:
    url, handler = model
    handler.reply = "  "
    with pytest.raises(EndpointFailure, match="wrote nothing"):
        ask_endpoint(url, "silent", EndpointConfig(max_retries=0))("prompt")


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
