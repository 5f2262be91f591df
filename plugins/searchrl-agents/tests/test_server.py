"""The server of agents: the stock client, what is refused, who is let in, and its end."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from httpx2 import Client, Response
from openai import OpenAI
from searchrl_agents import wire
from searchrl_agents.server import MAX_BODY_BYTES, ROUTES, AgentServer
from searchrl_agents.session import Session
from searchrl_agents.talk import Called, Message, Refused, Reply, Request
from test_history import renderer

CHAT = "/v1/chat/completions"
HI: list[Any] = [{"role": "user", "content": "hi"}]
TOOL: Any = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
CALL = Called("c1", "search", '{"query": "Köln"}')
LOGPS = (-0.5, -1.0, -0.25)
ROLLOUTS: dict[str, Session] = {}


def a_reply(content: str = "né", reasoning: str = "hm", calls: tuple[Called, ...] = ()) -> Reply:
    reason = "tool_calls" if calls else "stop"
    return Reply("r1", content, reasoning, calls, reason, (5, 6, 7), LOGPS, ("n", "é", "<end>"), 11)


@pytest.fixture(autouse=True)
def rollout() -> Mock:
    fake = Mock(spec=Session, temperature=0.7)
    fake.chat.side_effect = lambda request: [a_reply()] * request.count
    ROLLOUTS["sesame"] = fake
    return fake


@pytest.fixture(scope="module")
def line() -> Iterator[Client]:
    server = AgentServer(lambda key: ROLLOUTS.get(key))
    server.start()
    headers = {"Authorization": "Bearer sesame"}
    with Client(base_url=server.address, headers=headers, verify=False) as line:
        yield line
    server.close()


@pytest.fixture(scope="module")
def client(line: Client) -> OpenAI:
    return OpenAI(base_url=line.base_url.join("/v1"), api_key="sesame", max_retries=0)


def error_of(answer: Response, status: int) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    return answer.json()["error"]


def test_replies_have_usage_and_logprobs(client: OpenAI, rollout: Mock) -> None:
    made = client.chat.completions.create(model="gpt-5", messages=HI, n=2, logprobs=True)
    choice: Any = made.choices[1]
    assert (choice.message.content, choice.message.reasoning_content) == ("né", "hm")
    assert (choice.index, choice.finish_reason, choice.message.tool_calls) == (1, "stop", None)
    rows = choice.logprobs.content
    assert tuple(row.logprob for row in rows) == LOGPS and rows[0].top_logprobs == []
    assert (rows[1].token, bytes(rows[1].bytes).decode()) == ("é", "é")
    assert made.usage and (made.usage.prompt_tokens, made.usage.completion_tokens) == (11, 6)
    assert [model.id for model in client.models.list()] == ["policy"]


@pytest.mark.parametrize("thought", ["", "<think>hm</think>\n\n"])
def test_bytes_of_logprobs_join_to_the_text_that_was_sampled(thought: str) -> None:
    """Tokens may be parts of a character, or lose the space before them when they stand alone."""
    text, codec = thought + "Zoë \U0001f600é", renderer()
    tokens = [codec.decode([one]) for one in codec.encode_model_text(text)]
    for pieces in (tokens, [*(one.strip() for one in tokens), "<end>"]):
        logps = (-math.inf,) * len(pieces)
        reply = Reply("r", "Zoë \U0001f600é", "", (), "stop", (), logps, tuple(pieces), 1, text)
        rows = wire.write_completion(wire.Chat(messages=HI, logprobs=True), [reply])
        rows = json.loads(json.dumps(rows, allow_nan=False))["choices"][0]["logprobs"]["content"]
        assert b"".join(bytes(row["bytes"]) for row in rows).decode() == text
        assert [row["token"] for row in rows] == pieces


def test_tool_calls_go_out_and_come_back(client: OpenAI, rollout: Mock) -> None:
    rollout.chat.side_effect = [[a_reply("", "", (CALL, CALL))], [a_reply()]]
    chat = client.chat.completions
    choice = chat.create(model="policy", messages=HI, tools=[TOOL]).choices[0]
    assert (choice.message.content, choice.finish_reason) == (None, "tool_calls")
    result: Any = {"role": "tool", "tool_call_id": "c1", "content": "a town"}
    chat.create(model="policy", messages=[*HI, choice.message, result])  # type: ignore[list-item]
    first, second = (call.args[0] for call in rollout.chat.mock_calls)
    assert first.tools == (TOOL,) and list(first.tools[0]["function"]) == list(TOOL["function"])
    calling = Message("assistant", calls=(CALL, CALL))
    assert second.messages[1:] == (calling, Message("tool", "a town", call_id="c1"))


def test_streamed_replies_are_put_together(client: OpenAI, rollout: Mock) -> None:
    rollout.chat.side_effect = [[a_reply(calls=(CALL, CALL))] * 2]
    body: Any = {"model": "policy", "messages": HI, "stream_options": {"include_usage": True}}
    with client.chat.completions.stream(**body, logprobs=True, n=2) as stream:
        made: Any = stream.get_final_completion()
    for choice in made.choices:
        assert (choice.message.content, choice.message.reasoning_content) == ("né", "hm")
        calls = [call.function.arguments for call in choice.message.tool_calls]
        assert (calls, choice.finish_reason) == ([CALL.arguments] * 2, "tool_calls")
        assert tuple(one.logprob for one in choice.logprobs.content) == LOGPS
    assert (len(made.choices), made.usage.completion_tokens) == (2, 6)


def test_messages_are_read(line: Client, rollout: Mock) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": "é"}}}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": text} for text in "ab"]},
        {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [call]},
        {"role": "assistant", "reasoning_content": "so", "reasoning": "no", "tool_calls": None},
    ]
    assert line.post(CHAT, json={"messages": messages}).is_success
    assert rollout.chat.call_args.args[0].messages == (
        Message("system", "ab"),
        Message("assistant", reasoning="hm", calls=(Called("c1", "f", '{"a": "é"}'),)),
        Message("assistant", reasoning="so"),
    )


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ({"stop": "x", "max_tokens": 7}, {"stops": ("x",), "max_tokens": 7}),
        ({"stop": ["x", ""], "max_completion_tokens": 5}, {"stops": ("x",), "max_tokens": 5}),
        ({"tools": [TOOL], "tool_choice": "none", "n": 16}, {"tools": (), "count": 16}),
        ({"chat_template_kwargs": {"enable_thinking": False, "x": 1}}, {"thinking": False}),
        ({"temperature": 0.7, "top_p": 1.0, "presence_penalty": 0, "logit_bias": {}}, {}),
        ({"response_format": {"type": "text"}, "user": "u", "seed": 1, "what": {"is": "it"}}, {}),
        (dict.fromkeys(("stop", "max_tokens", "n", "tools", "tool_choice", "temperature")), {}),
    ],
)
def test_fields_are_read(line: Client, rollout: Mock, body: Any, read: Any) -> None:
    assert line.post(CHAT, json={"messages": HI, **body}).is_success
    request = rollout.chat.call_args.args[0]
    assert request == Request((Message("user", "hi"),), key=request.key, **read)


REFUSED: dict[str, list[Any]] = {
    **{key: [0.9] for key in ("temperature", "top_p", "presence_penalty", "frequency_penalty")},
    "model": ["base"],
    "logit_bias": [{"5": 1}],
    "functions": [[{}]],
    "tool_choice": ["required", TOOL],
    "response_format": [{"type": "json_object"}],
    "n": [0, 17, True],
    "max_tokens": [0, "7"],
    "tools[1].type": [[TOOL, {"type": "web_search"}]],
    "messages[0].tool_calls[0].function.parameters": [
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "parameters": {"q": 1}}}]}]
    ],
    "messages[0].role": [[{"role": "function"}]],
    "messages[0].content": [[{"role": "user", "content": [{"type": "image_url"}]}]],
}


@pytest.mark.parametrize("where", REFUSED)
def test_refused_is_what_would_train_wrong(line: Client, rollout: Mock, where: str) -> None:
    for value in REFUSED[where]:
        body = {"messages": HI, "stream": True, where.split("[")[0]: value}
        error = error_of(line.post(CHAT, json=body), 400)
        assert error["param"] == where and error["message"].startswith(f"{where}: ")
    assert not rollout.chat.called


def test_a_request_that_is_sent_again_has_its_key(line: Client, rollout: Mock) -> None:
    for headers in ({}, {"x-stainless-retry-count": "1"}, {"Idempotency-Key": "k"}):
        line.post(CHAT, json={"messages": HI}, headers=headers)
    first, again, named = (call.args[0].key for call in rollout.chat.mock_calls)
    assert first == again != named == "k"


def test_agents_without_a_model_are_answered(line: Client, rollout: Mock) -> None:
    rollout.tool.side_effect = "{} {}".format
    assert line.post("/v1/searchrl/tools/f", json={"a": None}).json()["result"] == "f {'a': None}"
    for name, value in (("answer", "Köln"), ("reward", 1)):
        assert line.post(f"/v1/searchrl/{name}", json={name: value}).is_success
        getattr(rollout, name).assert_called_once_with(value)


@pytest.mark.parametrize(
    ("route", "content", "status", "word"),
    [
        (f"POST {CHAT}", "{", 400, "JSON"),
        (f"POST {CHAT}", "[]", 400, "object"),
        ("POST /v1/searchrl/tools/look", "[]", 400, "object"),
        ("POST /v1/searchrl/answer", '{"answer": 1}', 400, "answer"),
        ("POST /v1/searchrl/reward", '{"reward": NaN}', 400, "finite"),
        pytest.param(f"POST {CHAT}", " " * (MAX_BODY_BYTES + 1), 413, "8,388,608", id="large"),
        ("POST /v1/responses", "{}", 404, f"POST {CHAT}"),
        (f"GET {CHAT}", "", 405, f"POST {CHAT}"),
    ],
)
def test_what_has_no_answer(line: Client, route: str, content: str, status: int, word: str) -> None:
    answer = line.request(*route.split(), content=content)
    assert word in error_of(answer, status)["message"]


@pytest.mark.parametrize("route", ROUTES)
def test_nobody_else_is_let_in(line: Client, route: str) -> None:
    for name, value, status, word in (
        ("Authorization", "Bearer wrong", 401, "one rollout"),
        ("Host", "evil.example:80", 403, "this machine"),
        ("Origin", "http://evil.example", 403, "another site"),
    ):
        answer = line.request(*route.split(), headers={name: value})
        assert answer.status_code == status and word in answer.text


def test_what_a_rollout_raises_is_not_shown(line: Client, rollout: Mock, caplog: Any) -> None:
    rollout.chat.side_effect = [ValueError("two\nlines"), Refused("too long", 422, "too_long")]
    error = error_of(line.post(CHAT, json={"messages": HI, "stream": True}), 500)
    assert (error["code"], error["message"]) == ("rollout_failed", "ValueError: two lines")
    error = error_of(line.post(CHAT, json={"messages": HI, "stream": True}), 422)
    assert (error["code"], error["message"]) == ("too_long", "too long")
    assert not caplog.records


def test_256_wait_together_and_the_end_leaves_nothing(rollout: Mock) -> None:
    before = {*threading.enumerate()}
    gate = threading.Barrier(257)
    rollout.chat.side_effect = lambda _: [a_reply() for _ in [gate.wait(10)]]
    server = AgentServer(lambda key: ROLLOUTS.get(key))
    server.start()
    host, port = server.address.removeprefix("http://").split(":")
    body = '{"messages": [{"role": "user"}]}'
    head = f"Host: {host}:{port}\r\nAuthorization: Bearer sesame\r\nContent-Length: {len(body)}"
    waiting = [socket.create_connection((host, int(port))) for _ in range(256)]
    for one in waiting:
        one.sendall(f"POST {CHAT} HTTP/1.1\r\n{head}\r\n\r\n{body}".encode())
    waiting.pop().close()  # a client that does not wait for its answer
    gate.wait(10)
    assert {one.recv(12) for one in waiting} == {b"HTTP/1.1 200"}
    for one in waiting:
        one.close()
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    for thread in {*threading.enumerate()} - before:
        thread.join(5)
    assert {*threading.enumerate()} <= before
