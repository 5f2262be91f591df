"""One server: what goes out, odd answers, limits, tries, addresses, and the key nobody sees."""

import json
import time
import traceback
from typing import Any

import pytest
from fixtures.openai_server import Fault, OpenAIServer, Raw

from searchrl.api_client.server import Refused, Server, read_key
from searchrl.errors import ConfigError, EndpointFailure

KEY = "sk-secret-0123"
AMBIENT = {
    "OPENAI_API_KEY": "sk-ambient",
    "OPENAI_ADMIN_KEY": "sk-ambient-admin",
    "OPENAI_BASE_URL": "http://ambient.invalid/v1",
    "OPENAI_ORG_ID": "org-ambient",
    "OPENAI_PROJECT_ID": "proj-ambient",
    "OPENAI_CUSTOM_HEADERS": "X-Ambient: ambient\nAuthorization: Bearer sk-ambient",
    "OPENAI_WEBHOOK_SECRET": "ambient",
}


def post(answer: Any, body: Any = None, **settings: Any) -> Any:
    with OpenAIServer(lambda body: answer) as server:
        settings = {"key": KEY, "max_retries": 0, **settings}
        return Server(server.url, "endpoint", **settings).post(body or {})


@pytest.mark.parametrize("key", [None, KEY, f"Basic {KEY}"])
def test_nothing_of_the_environment_or_the_machine_is_sent(
    key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)
    with OpenAIServer(lambda body: "x") as server:
        Server(server.url, "endpoint", key=key).post({"a": [1, None]})
        (sent,) = server.headers
        assert server.bodies == [{"a": [1, None]}] and server.paths == ["/v1"]
    expected = {None: None, KEY: f"Bearer {KEY}"}.get(key, key)
    assert sent.pop("authorization", None) == expected
    assert sent.pop("user-agent") == "searchrl"
    length = {"content-length", "content-type", "host", "accept", "accept-encoding", "connection"}
    assert set(sent) == length and "ambient" not in str(sent)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Fault(400, "max_tokens is not supported"), "answered 400: max_tokens is not supported"),
        (Fault(404), "answered 404: out of order; look at the address"),
        (Fault(307, "", {"Location": "http://h"}), r"answered 307; it sends us elsewhere"),
        (Raw(b'data: {"choices": []}\n\n'), "sent no JSON: data:"),
        (Raw(b"[" * 100_000), "sent no JSON"),
    ],
)
def test_an_answer_that_is_none_is_a_failure(answer: Any, said: str) -> None:
    with pytest.raises(EndpointFailure, match=said):
        post(answer)


def test_a_request_ends_in_time_though_its_answer_never_does() -> None:
    """The library's limit is one of silence; a server that sends a byte now and then is not."""
    for answer in (Raw(b" " * 100, pause_s=0.05), Fault(503), Fault(503, "", {"Retry-After": "9"})):
        began = time.monotonic()
        with pytest.raises(EndpointFailure, match=r"0\.6 s \(endpoint|answered 503.*wait 9 s"):
            post(answer, timeout_s=0.6, max_retries=9)
        assert time.monotonic() - began < 3


def test_a_server_that_is_silent_is_left() -> None:
    with OpenAIServer(lambda body: "x", delay_s=1.0) as server:
        with pytest.raises(EndpointFailure, match=r"did not answer within 0\.1 s"):
            Server(server.url, "endpoint", timeout_s=0.1).post({})
        assert len(server.bodies) == 1


def test_a_longer_answer_than_allowed_is_not_read() -> None:
    with pytest.raises(EndpointFailure, match="sent more than 1,000 bytes"):
        post("a b c " * 200_000, max_bytes=1000)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again_when_it_says(status: int) -> None:
    left = [Fault(status, headers={"Retry-After": "0.3"}), "fine"]
    with OpenAIServer(lambda body: left.pop(0)) as server:
        tries: list[bool] = []
        began = time.monotonic()
        Server(server.url, "endpoint").post({}, before=tries.append)
        assert time.monotonic() - began >= 0.3 and tries == [False, True]


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "overloaded", "code": 429}},
        {"choices": [{"finish_reason": "error", "message": {"content": "half"}}]},
    ],
)
def test_an_error_with_status_200_is_asked_again(body: Any) -> None:
    fault, tries = Raw(json.dumps(body).encode()), list[bool]()
    left = [fault, "fine"]
    with OpenAIServer(lambda body: left.pop(0)) as server:
        assert "choices" in Server(server.url, "endpoint").post({}, before=tries.append)
    assert tries == [False, True]
    with pytest.raises(EndpointFailure, match="answered 200: .*error"):
        post(fault)


@pytest.mark.parametrize(
    "body", [{"error": None, "choices": []}, {"result": ["x"], "error": "one of two"}, ["error"]]
)
def test_an_answer_that_speaks_of_an_error_is_an_answer(body: Any) -> None:
    assert post(Raw(json.dumps(body).encode())) == body


def test_tries_have_an_end_and_a_server_that_is_down_is_a_failure() -> None:
    with OpenAIServer(lambda body: Fault(503, headers={"Retry-After": "0.01"})) as server:
        with pytest.raises(Refused, match=r"answered 503: out of order \(3 times\)"):
            Server(server.url, "endpoint", max_retries=2).post({})
        assert len(server.bodies) == 3
    with pytest.raises(EndpointFailure, match="cannot be reached: .*refused"):
        Server(server.url, "endpoint", max_retries=0).post({})


def test_a_server_that_refuses_everything_is_not_asked_again() -> None:
    with OpenAIServer(lambda body: Fault(401)) as server:
        one = Server(server.url, "retriever", key=KEY)
        for _ in range(2):
            with pytest.raises(Refused, match=r"answered 401.*retriever\.key_env") as it:
                one.post({})
            assert it.value.status == 401
        assert len(server.bodies) == 1


@pytest.mark.parametrize("key", [KEY, f"Basic {KEY}"])
@pytest.mark.parametrize(
    "answer",
    [
        *(Fault(status, f"wrong key {KEY}") for status in (400, 401, 503)),
        Raw(f"wrong key {KEY}".encode()),
    ],
)
def test_a_key_that_a_server_repeats_is_not_shown(answer: Any, key: str) -> None:
    with pytest.raises(EndpointFailure, match=r"wrong key \[key\]") as it:
        post(answer, key=key)
    assert KEY not in "".join(traceback.format_exception(it.value))


@pytest.mark.parametrize("key", ["gAAA/b+c==", "Basic bWU6cGFzcw=="])
def test_a_key_that_is_escaped_in_a_good_answer_is_not_kept(key: str) -> None:
    secret = key.split()[-1]
    inner = json.dumps({secret: f"your key {secret}"}).replace("/", "\\/")
    content = json.dumps({"text": inner}).replace(secret[0], f"\\u{ord(secret[0]):04x}")
    answer = post(Raw(content.encode()), key=key)
    assert answer == {"text": '{"[key]": "your key [key]"}'}


@pytest.mark.parametrize("value", [f"{KEY}\nX: 1", f"{KEY}\u2019"])
def test_a_key_that_no_header_may_hold_is_refused_and_not_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", value)
    with pytest.raises(ConfigError, match="environment variable A_KEY holds no key") as it:
        read_key("A_KEY")
    assert KEY not in "".join(traceback.format_exception(it.value))
    monkeypatch.setenv("A_KEY", "none")
    with pytest.warns(UserWarning, match="key in A_KEY is short.*set EMPTY"):
        read_key("A_KEY")
    monkeypatch.setenv("A_KEY", f" {KEY}\n")
    assert read_key("A_KEY") == KEY and read_key("NO_SUCH_KEY") is None


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8000", "ftp://h/v1", "http://", "ht\ntp://h"),
        *("http://h /v1", f"https://me:{KEY}@h/v1", f"https://h/v1?key={KEY}"),
    ],
)
def test_what_is_no_plain_address_is_refused_and_no_key_in_it_is_shown(url: str) -> None:
    with pytest.raises(ConfigError, match=r"is no address of a server.*endpoint\.key_env") as it:
        Server(url, "endpoint")
    assert KEY not in str(it.value)
