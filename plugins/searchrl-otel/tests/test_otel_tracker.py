"""Spans of runs: in a file, at a receiver of OTLP over HTTP, and after what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from searchrl_otel.tracker import LOGGER, OtelTracker

from searchrl import ConfigError, Run, evaluate, train
from searchrl.testing import assert_conforms

STEP: dict[str, Any] = {"env": "regulations", "model": "tiny", "max_steps": 1, "num_threads": 1}
STEP |= {"plugins": ["searchrl_otel"], "eval": {"num_tasks": 1}}
STEP["rollout"] = {"prompts_per_step": 1, "group_size": 4}
EPISODE, ROW = "invoke_agent regulations", "gen_ai.conversation.id"
BREAKS = """
import time, gymnasium
from searchrl import hookimpl
class Breaks(gymnasium.Wrapper):
    def reset(self, **given):
        self.index = given["options"]["index"]
        return self.env.reset(**given)
    def step(self, action):
        _ = self.index and (time.sleep(9) if self.index == 2 else int("a secret"))
        return self.env.step(action)
@hookimpl
def register_wrappers(register):
    register("breaks", Breaks)
"""


def spans_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The spans of a request of OTLP, with their attributes by name."""
    scopes = (scope for one in request["resourceSpans"] for scope in one["scopeSpans"])
    for span in (spans := [span for scope in scopes for span in scope["spans"]]):
        pairs = ((one["key"], one["value"]) for one in span.get("attributes", ()))
        span["facts"] = {key: next(iter(value.values()), "") for key, value in pairs}
    return spans


def read(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "spans.jsonl").read_text("utf-8").splitlines()
    return [span for line in lines for span in spans_of(json.loads(line))]


def tree(spans: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Names of spans with those of their parents."""
    names = {span["spanId"]: span["name"] for span in spans}
    return Counter((names.get(one.get("parentSpanId", ""), ""), one["name"]) for one in spans)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "a"
    train({**STEP, "run_dir": str(folder), "log": {"trackers": ["otel"]}}, quiet=True)
    return folder


def test_spans_form_a_tree_that_leads_to_the_rows_and_has_no_texts(run_dir: Path) -> None:
    spans, made = read(run_dir), tree(read(run_dir))
    assert {child for parent, child in made if not parent} == {"run a"}
    below = {child for parent, child in made if parent == "step 1"}
    assert below == {EPISODE, "update", "reward format", "reward em"}
    below = {child for parent, child in made if parent == EPISODE}
    assert {"chat", "execute_tool search", "execute_tool answer"} <= below
    assert {parent for parent, child in made if child == "retrieval"} == {"execute_tool search"}
    assert made["evaluate (before)", EPISODE] == 2  # one must search first
    rows = [f"{r['phase']}.{r['step']}/{r['rollout_id']}" for r in Run.open(run_dir).rollouts()]
    ids = [one["facts"][ROW] for one in spans if one["name"] in (EPISODE, "reward em")]
    assert sorted(ids) == sorted(rows * 2)
    ends = {one["spanId"]: int(one["endTimeUnixNano"]) for one in spans} | {"": 1 << 63}
    assert all(ends[one["spanId"]] <= ends[one["parentSpanId"]] for one in spans)
    facts = str([one["facts"].keys() for one in spans])
    assert "usage" in facts and not any(text in facts for text in ("messages", "result", "query"))


def test_a_collector_gets_the_spans_of_a_second_run_with_texts(run_dir: Path) -> None:
    received: list[dict[str, Any]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["content-length"]))
            received.extend(spans_of(MessageToDict(ExportTraceServiceRequest.FromString(body))))
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        log = {"trackers": [{"name": "otel", "endpoint": address, "content": True}]}
        train({**STEP, "run_dir": str(run_dir.parent / "b" / "a"), "log": log}, quiet=True)
        server.shutdown()
    assert tree(received) == tree(read(run_dir))  # the first run got nothing of the second
    said = next(one["facts"]["gen_ai.output.messages"] for one in received if one["name"] == "chat")
    assert json.loads(said)[0]["parts"][0]["content"].startswith("<")


def test_what_fails_is_an_error_without_its_message(tmp_path: Path) -> None:
    (tmp_path / "breaks.py").write_text(BREAKS)
    tracker = OtelTracker(tmp_path)
    config = {"env": "regulations", "policy": "scripted", "wrapper": "breaks"}
    rollout = {"env_timeout_s": 0.5, "max_failure_frac": 1}
    played = {"rollout": rollout, "eval": {"num_tasks": 3, "forced": False}}
    evaluate({**config, **played, "plugins": [str(tmp_path / "breaks.py")]})
    tracker.close()
    kinds = {(one["name"].split()[0], one["facts"].get("error.type")) for one in read(tmp_path)}
    assert kinds >= {("invoke_agent", one) for one in (None, "environment", "timeout")}
    assert kinds >= {("execute_tool", one) for one in ("ValueError", "unfinished")}
    assert "a secret" not in (tmp_path / "spans.jsonl").read_text()


def test_finished_spans_outlive_a_kill(tmp_path: Path) -> None:
    program = f"""import os; from searchrl_otel.tracker import OtelTracker, trace
OtelTracker({str(tmp_path)!r})
trace.get_tracer("t").start_span("s").end(); os.kill(os.getpid(), 9)"""
    ended = subprocess.run([sys.executable, "-c", program], check=False)
    assert ended.returncode == -9 and [span["name"] for span in read(tmp_path)] == ["s"]


@pytest.mark.parametrize(
    "wrong",
    "endpoint=localhost:4318 endpoint=ftp://h endpoint=http:// endpoint=http://h:99999 "
    "file=../spans.jsonl file=metrics.jsonl file=a/b.jsonl file=b&endpoint=http://h "
    "file=journal.jsonl file=config.yaml file= file=rows.jsonl".split(),
)
def test_a_wrong_setting_is_one_sentence(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "rows.jsonl").write_text('{"step": 1}')
    settings: Any = dict(one.split("=") for one in wrong.split("&"))
    with pytest.raises(ConfigError) as raised:
        OtelTracker(tmp_path, **settings)
    assert all(name in str(raised.value) for name in ("tracker otel", *settings))


def test_numbers_are_otlp_texts_private_and_the_process_as_before(tmp_path: Path) -> None:
    before = dict(os.environ), LOGGER.level
    tracker = OtelTracker(tmp_path, content=True)
    facts: Any = {"a": np.float64(0.5), "b": float("nan"), "c": True}
    context, resource = trace.INVALID_SPAN_CONTEXT, Resource({})
    tracker._end.on_end(ReadableSpan("s", context, resource=resource, attributes=facts))
    tracker.close()
    values = [one["value"] for one in read(tmp_path)[0]["attributes"]]
    assert values == [{"doubleValue": 0.5}, {"doubleValue": "NaN"}, {"boolValue": True}]
    assert (tmp_path / "spans.jsonl").stat().st_mode & 0o777 == 0o600
    assert before == (dict(os.environ), LOGGER.level)


def test_spans_without_a_collector_or_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchrl_otel.tracker.CLOSE_S", 0.3)
    monkeypatch.setattr("searchrl_otel.tracker.QUEUE", 600)
    tracker = OtelTracker("unused", endpoint="http://127.0.0.1:9")
    for _ in range(1000):
        trace.get_tracer("t").start_span("s").end()
    with pytest.warns(UserWarning, match="1000 spans did not get to http://127.0.0.1:9/v1/traces"):
        tracker.close()


def test_it_holds_the_criteria_of_trackers() -> None:
    assert_conforms("otel", plugins=["searchrl_otel"])
