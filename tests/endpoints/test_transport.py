"""One call to an endpoint: odd answers, time limits, addresses, and the key that nobody sees."""

from __future__ import annotations

import json
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from fixtures.openai_server import Fault, OpenAIServer, Raw

from searchrl.config import build_config, parse_set
from searchrl.endpoints import transport
from searchrl.endpoints.cache import ReplyCache
from searchrl.endpoints.client import Access, Client
from searchrl.endpoints.exchange import Api, Finish, Reply, Request, Usage
from searchrl.endpoints.retries import Retries
from searchrl.endpoints.transport import Hopeless, Passing, Target, Transport, read_key
from searchrl.endpoints.wire import endpoint_url, read_reply
from searchrl.errors import ConfigError, EndpointFailure

KEY = "sk-secret-0123"


def post(answer: Any, **access: Any) -> Reply:
    with OpenAIServer(lambda body: answer) as server:
        client = Client(Access(server.url, "toy", key=KEY, **access), retries=Retries(0))
        try:
            return client.complete(Request((), 7))
        finally:
            client.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Fault(400, "max_tokens is not supported"), "answered 400: max_tokens is not supported; "),
        (Fault(400), r"left out with --set endpoint\.extra\.KEY=null"),
        (Fault(307, "", {"Location": "http://h"}), r"answered 307; it sends us elsewhere"),
        (Fault(204, ""), "answered 204$"),
        (Raw(b'{"choices":[{"mess'), r'sent no JSON: \{"choices":\[\{"mess'),
        (Raw(b'data: {"choices": []}\n\n'), "sent no JSON: data:"),
        (Raw(b"<html>a proxy</html>"), "sent no JSON: <html>"),
        (Raw(b'{"choices":[{"message":{"content":"a\xe9"}}]}'), "sent no JSON"),
        (Raw(b"[" * 100_000), "sent no JSON"),
        (Raw(b"[]"), r"completions sent no choice: \[\]"),
    ],
)
def test_an_answer_that_is_none_is_a_failure(answer: Any, said: str) -> None:
    with pytest.raises(EndpointFailure, match=said):
        post(answer)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"choices": []},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": 3}}]},
        {"choices": ["x"]},
        "x",
    ],
)
def test_an_answer_of_another_shape_is_a_failure_that_quotes_it(answer: Any) -> None:
    with pytest.raises(EndpointFailure, match="sent no"):
        read_reply(Api.CHAT, answer)


def test_what_a_choice_may_hold() -> None:
    def read(**choice: Any) -> Reply:
        return read_reply(Api.CHAT, {"choices": [{"message": {"content": "t"}, **choice}]})

    assert read(finish_reason="length").finish is Finish.LENGTH
    assert read(finish_reason="content_filter").finish is Finish.WITHHELD
    for name in ("stop_reason", "matched_stop"):  # vLLM, SGLang
        assert read(finish_reason="stop", **{name: "</a>"}).stop == "</a>"
        assert read(finish_reason="stop", **{name: None}).finish is Finish.STOP
        ended = read(finish_reason="stop", **{name: 151645})
        assert ended.stop is None and ended.finish is Finish.END
    assert read_reply(Api.CHAT, {"choices": [{"message": {"content": None}}]}).text == ""
    split = json.loads('"a\\ud800b"')
    assert read_reply(Api.COMPLETIONS, {"choices": [{"text": split}]}).text == "a?b"


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 0}, Usage(3, 0)),
        ({"prompt_tokens": 3}, None),
        ({"prompt_tokens": 3, "completion_tokens": -1}, None),
        ({"prompt_tokens": 10**400, "completion_tokens": 1}, None),
        ({"prompt_tokens": 2.5, "completion_tokens": True}, None),
        (None, None),
        ("many", None),
    ],
)
def test_tokens_are_counted_or_absent(usage: Any, read: Usage | None) -> None:
    reply = read_reply(Api.CHAT, {"choices": [{"message": {"content": "t"}}], "usage": usage})
    assert reply.usage == read


def test_a_call_ends_in_time_though_its_answer_never_stops() -> None:
    """The library's limit is one of silence; a server that sends a byte now and then is not."""
    began = time.monotonic()
    with pytest.raises(EndpointFailure, match=r"did not answer within 0\.3 s"):
        post(Raw(b" " * 100, pause_s=0.05), timeout_s=0.3)
    assert time.monotonic() - began < 2


def test_a_server_that_is_silent_is_left() -> None:
    with OpenAIServer(lambda body: "x", delay_s=1.0) as server:
        sender = Transport(Target(server.url, "endpoint", timeout_s=0.1))
        with pytest.raises(Passing, match=r"did not answer within 0\.1 s"):
            sender.post({})
        sender.close()


def test_an_answer_longer_than_a_model_writes_is_not_read() -> None:
    """One of 10 MB was parsed for 12 s."""
    with pytest.raises(EndpointFailure, match="sent more than 1,048,576 bytes"):
        post("a b c " * 200_000)


@pytest.mark.parametrize("key", [KEY, f"Basic {KEY}", 'a"b\\c/' + KEY])
def test_a_key_in_a_reply_is_neither_kept_nor_given(key: str, tmp_path: Path) -> None:
    """It came back into rollouts, logs and the cache. JSON can hide it in escapes."""
    hidden = "".join(f"\\u{ord(one):04x}" for one in key)
    body = f'{{"choices":[{{"message":{{"content":"the key {hidden}"}}}}]}}'.encode()
    cache = ReplyCache(tmp_path / "c.sqlite")
    with OpenAIServer(lambda _: Raw(body)) as server:
        client = Client(Access(server.url, "toy", key=key), cache=cache)
        reply = client.complete(Request((), 7))
        client.close()
    assert reply.text.startswith("the key ") and KEY not in reply.text
    assert KEY.encode() not in (tmp_path / "c.sqlite").read_bytes()


def test_a_word_in_the_place_of_a_key_changes_no_reply() -> None:
    with OpenAIServer(lambda _: "it is EMPTY") as server:
        client = Client(Access(server.url, "toy", key="EMPTY"))
        assert client.complete(Request((), 7)).text == "it is EMPTY"
        client.close()


@pytest.mark.parametrize(
    "answer",
    [
        Fault(401, f"wrong key {KEY}"),
        Fault(400, f"wrong key {KEY}"),
        Fault(503, f"wrong key {KEY}"),
        Raw(json.dumps({"error": {"message": f"wrong key {KEY}"}}).encode()),
        Raw(f"wrong key {KEY}".encode()),
    ],
)
def test_a_key_that_a_server_repeats_is_not_shown(answer: Any) -> None:
    with pytest.raises(EndpointFailure, match=r"wrong key \[key\]") as it:
        post(answer)
    told = "".join(traceback.format_exception(it.value))
    assert KEY not in told
    assert isinstance(it.value, Hopeless) == (getattr(answer, "status", 0) == 401)
    assert KEY not in repr((Access("http://h", "m", key=KEY), Target("http://h", "e", key=KEY)))


@pytest.mark.parametrize("value", [f"{KEY}\nX: 1", f"{KEY}\x00", f"{KEY}\u2019"])
def test_a_key_that_no_header_may_hold_is_refused_and_not_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library would show it, as the header that is wrong."""
    monkeypatch.setattr(transport.os, "environ", {"A_KEY": value})
    with pytest.raises(ConfigError, match="environment variable A_KEY holds no key") as it:
        read_key("A_KEY")
    assert KEY not in "".join(traceback.format_exception(it.value))


def test_white_space_around_a_key_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", f" {KEY}\n")
    assert read_key("A_KEY") == KEY
    monkeypatch.setenv("A_KEY", " ")
    assert read_key("A_KEY") is None and read_key("NO_SUCH_KEY") is None


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1/chat/completions"),
        ("https://api.x.org/v1/", "https://api.x.org/v1/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
    ],
)
def test_addresses(base: str, url: str) -> None:
    assert endpoint_url(base, Api.CHAT) == url
    assert endpoint_url(base, Api.COMPLETIONS) == url.replace("/chat/", "/")


@pytest.mark.parametrize(
    "base",
    ["", "localhost:8000", "ftp://h/v1", "http://", "http://h:x/v1", "ht\ntp://h", "http://h /v1"],
)
def test_what_is_no_address_is_refused(base: str) -> None:
    with pytest.raises(ConfigError, match="is no address of an endpoint"):
        endpoint_url(base, Api.CHAT)


@pytest.mark.parametrize("base", [f"https://me:{KEY}@h/v1", f"https://h/v1?key={KEY}"])
def test_an_address_with_a_key_is_refused_and_not_shown(base: str) -> None:
    with pytest.raises(ConfigError, match="endpoint.key_env") as error:
        endpoint_url(base, Api.CHAT)
    assert KEY not in str(error.value)


def test_a_cache_is_switched_off_as_yaml_reads_it() -> None:
    for layer in (parse_set("endpoint.cache=off"), {"endpoint": {"cache": "off"}}):
        assert not build_config(layer).endpoint.has_cache
    assert build_config({}).endpoint.has_cache
    assert build_config({}).endpoint.cache_path is None
    named = build_config(parse_set("endpoint.cache=~/c.sqlite")).endpoint
    assert named.cache_path == Path.home() / "c.sqlite"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"extra": {"stream": True}}, "'stream' is not for you to set"),
        ({"extra": {"model": "another"}}, "'model' is not for you to set"),
        ({"extra": {"top_a": float("nan")}}, "what JSON can say"),
        ({"extra": {"since": {1, 2}}}, "what JSON can say"),
        ({"max_cost": 1}, "a cost needs both prices"),
        ({"prompt_price": 1}, "a cost needs both prices"),
        ({"prompt_price": 1, "max_cost": 2}, "a cost needs both prices"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_config({"endpoint": settings})
