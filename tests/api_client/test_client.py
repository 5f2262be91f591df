"""The client of models against a server on this machine: replies, cache, budget, its end."""

import json
import sqlite3
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
from fixtures.openai_server import Fault, OpenAIServer, Raw

from searchrl.api_client import Client, Message, Request
from searchrl.api_client.exchange import Finish, Reply, make_body, read_reply
from searchrl.config import build_config
from searchrl.config.endpoint import EndpointConfig
from searchrl.errors import BudgetSpent, ConfigError, EndpointFailure

ASKED = Request((Message("user", "When does it close?"),), max_tokens=7, stops=("</a>",))
KEY = "sk-secret-0123"


def make_client(url: str, **settings: Any) -> Client:
    given = {"cache": "off", "key_env": "A_TEST_KEY", "max_retries": 0, **settings}
    return Client(url, "toy", EndpointConfig.model_validate(given))


def answers(*replies: str | Fault):
    left = list(replies)
    lock = threading.Lock()

    def answer(body: dict[str, Any]) -> str | Fault:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return answer


def test_what_is_sent_and_what_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TEST_KEY", KEY)
    with OpenAIServer(lambda body: "at five</a> or six") as server:
        client = make_client(server.url, extra={"seed": 3, "stop": None})
        reply = client.complete(ASKED)
        client.close()
    assert reply == Reply("at five</a> or six", Finish.STOP, None, (100, 10))
    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies == [
        {
            "model": "toy",
            "messages": [{"role": "user", "content": "When does it close?"}],
            "max_tokens": 7,
            "temperature": 0.0,
            "seed": 3,
        }
    ]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert client.told(ASKED.stops) == ()


def test_completions_are_asked_with_one_text() -> None:
    told = (
        Message("system", "Search."),
        Message("user", "Who?"),
        Message("assistant", "<s>who</s>"),
        Message("user", "\n<i>Ada</i>\n"),
    )
    body = make_body("toy", "completions", Request(told, 5), {})
    assert body["prompt"] == "Search.\n\nWho?\n<s>who</s>\n<i>Ada</i>\n"
    with OpenAIServer(lambda body: "x") as server:
        for url in (server.url, f"{server.url}/", f"{server.url}/chat/completions"):
            client = make_client(url, api="completions")
            assert client.complete(ASKED).text == "x"
            client.close()
    assert server.paths == ["/v1/completions"] * 3


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": 3}}]},
        {"choices": ["x"]},
    ],
)
def test_an_answer_of_another_shape_is_a_failure_that_quotes_it(answer: Any) -> None:
    said = Raw(json.dumps(answer).encode())
    sent = pytest.raises(EndpointFailure, match=r"/v1/chat/completions sent no \w+: ")
    with OpenAIServer(lambda body: said) as server, sent:
        make_client(server.url).complete(ASKED)


def test_what_a_choice_may_hold() -> None:
    def read(**choice: Any) -> Reply:
        return read_reply("chat", {"choices": [{"message": {"content": "t"}, **choice}]})

    assert read(finish_reason="length").finish is Finish.LENGTH
    assert read(finish_reason="content_filter").finish is Finish.WITHHELD
    assert read(finish_reason=["odd"]).finish is Finish.STOP
    for name in ("stop_reason", "matched_stop"):  # vLLM, SGLang
        assert read(finish_reason="stop", **{name: "</a>"}).stop == "</a>"
        assert read(finish_reason="stop", **{name: None}).finish is Finish.STOP
        ended = read(finish_reason="stop", **{name: 151645})
        assert ended.stop is None and ended.finish is Finish.END
    assert read_reply("chat", {"choices": [{"message": {"content": None}}]}).text == ""
    split = json.loads('"a\\ud800b"')
    assert read_reply("completions", {"choices": [{"text": split}]}).text == "a?b"


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 0}, (3, 0)),
        ({"prompt_tokens": 3}, None),
        ({"prompt_tokens": 3, "completion_tokens": -1}, None),
        ({"prompt_tokens": 10**400, "completion_tokens": 1}, None),
        (None, None),
    ],
)
def test_tokens_are_counted_or_absent(usage: Any, read: tuple[int, int] | None) -> None:
    reply = read_reply("chat", {"choices": [{"message": {"content": "t"}}], "usage": usage})
    assert reply.usage == read


def test_a_reply_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TEST_KEY", KEY)
    path = tmp_path / "c.sqlite"
    with OpenAIServer(answers("first", "second", "third")) as server:
        for number in range(2):
            client = make_client(server.url, cache=str(path))
            assert client.complete(ASKED).text == "first"
            # Another draw of the same request is another reply.
            again = Request(ASKED.messages, 7, ASKED.stops, draw=1)
            assert client.complete(again).text == "second"
            assert client.traffic.calls == (2 if number == 0 else 0)
            assert client.traffic.cached == (0 if number == 0 else 2)
            assert client.traffic.prompt_tokens == (200 if number == 0 else 0)
            client.close()
        client = make_client(server.url, cache=str(path))
        client.forget(ASKED)
        assert client.complete(ASKED).text == "third"
        client.close()
    assert len(server.bodies) == 3
    assert KEY.encode() not in path.read_bytes() and path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", ['{"choices": 1}', "{"])
def test_a_damaged_reply_is_asked_for_again(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "c.sqlite"
    with OpenAIServer(answers("first", "second")) as server:
        for text, num_sent in (("first", 1), ("second", 2), ("second", 2)):
            client = make_client(server.url, cache=str(path))
            assert client.complete(ASKED).text == text
            client.close()
            assert len(server.bodies) == num_sent
            if text == "first":
                with sqlite3.connect(path) as database:
                    database.execute("UPDATE replies SET reply = ?", (damage,))


def test_a_reply_that_cannot_be_kept_is_not_lost(tmp_path: Path) -> None:
    """It is paid for. A full disk looks the same as this trigger."""
    path = tmp_path / "c.sqlite"
    with OpenAIServer(lambda body: "fine") as server:
        client = make_client(server.url, cache=str(path))
        with sqlite3.connect(path) as database:
            raising = "BEGIN SELECT RAISE(FAIL, 'full'); END"
            database.execute(f"CREATE TRIGGER full BEFORE INSERT ON replies {raising}")
        with pytest.warns(UserWarning, match=r"cannot be used \(full\)"):
            assert client.complete(ASKED).text == "fine"
        client.close()


def test_no_more_than_the_limit_is_under_way() -> None:
    with OpenAIServer(lambda body: "x", delay_s=0.05) as server:
        client = make_client(server.url, concurrency=3)
        waiting = [client.start(ASKED) for _ in range(12)]
        assert [one.result().text for one in waiting] == ["x"] * 12
        client.close()
    assert server.most_at_once == 3


@pytest.mark.parametrize(
    ("limits", "num_sent"),
    [
        ({"max_calls": 3}, 3),
        ({"max_calls": 0}, 0),
        ({"max_tokens": 200}, 2),
        ({"max_cost": 0.0006, "prompt_price": 1.0, "completion_price": 10.0}, 3),
    ],
)
def test_a_budget_ends_what_is_sent(limits: dict[str, Any], num_sent: int) -> None:
    with OpenAIServer(lambda body: "x") as server:
        client = make_client(server.url, **limits)
        for _ in range(num_sent):
            client.complete(ASKED)
        with pytest.raises(BudgetSpent, match=r"max_\w+ = .* used up: .* --set endpoint\.max_"):
            client.complete(ASKED)
        client.close()
    assert len(server.bodies) == num_sent == client.traffic.calls


def test_repetitions_are_paid_for_too() -> None:
    with OpenAIServer(lambda body: Fault(503, headers={"Retry-After": "0.01"})) as server:
        client = make_client(server.url, max_calls=2, max_retries=4)
        with pytest.raises(BudgetSpent):
            client.complete(ASKED)
        client.close()
    assert len(server.bodies) == 2 and client.traffic.retries == 1


@pytest.mark.parametrize("limits", [{"max_tokens": 500}, {"max_cost": 1.0}])
def test_tokens_that_nobody_counts_are_no_budget(limits: dict[str, Any]) -> None:
    """Else a limit on tokens or money would never end anything."""
    prices = {"prompt_price": 1.0, "completion_price": 1.0}
    said = Raw(b'{"choices": [{"message": {"content": "x"}}]}')
    with OpenAIServer(lambda body: said) as server:
        client = make_client(server.url, **limits, **prices)
        assert client.complete(ASKED).usage is None
        with pytest.raises(BudgetSpent, match=r"no tokens are counted.*max_calls"):
            client.complete(ASKED)
        client.close()
    assert "1 reply whose tokens it did not count" in client.traffic.describe()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"extra": {"stream": True}}, "'stream' is not for you to set"),
        ({"extra": {"top_a": float("nan")}}, "what JSON can say"),
        ({"max_cost": 1}, "a cost needs both prices"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_config({"endpoint": settings})


@pytest.mark.parametrize(
    "extra",
    [
        {"api_key": "s3cret"},
        {"a": [{"X-Api-Key": "s3cret"}]},
        {"note": "Bearer s3cret"},
        {"note": "sk-proj-abcdefghs3cret"},
    ],
)
def test_a_secret_is_no_setting_and_is_not_shown(extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"endpoint\.extra.*endpoint\.key_env=NAME") as it:
        build_config({"endpoint": {"extra": extra}})
    assert "s3cret" not in "".join(traceback.format_exception(it.value))
    schema = {"properties": {"password": {"type": "string"}}, "required": ["password"]}
    kept = {"prompt_cache_key": "x", "max_tokens": None, "stop_token_ids": [1], "schema": schema}
    assert build_config({"endpoint": {"extra": kept}}).endpoint.extra == kept
