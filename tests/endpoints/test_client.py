"""The client of endpoints against a server on this machine: cache, retries, budget, its end."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fixtures.openai_server import Fault, OpenAIServer, Raw

from searchrl.endpoints.budget import Allowance, Budget
from searchrl.endpoints.cache import ReplyCache
from searchrl.endpoints.client import PATIENCE_S, Access, Client
from searchrl.endpoints.exchange import (
    Api,
    Finish,
    Message,
    Reply,
    Request,
    Role,
    Usage,
    describe_traffic,
)
from searchrl.endpoints.retries import Retries, read_retry_after
from searchrl.endpoints.wire import make_body
from searchrl.errors import BudgetSpent, EndpointFailure

ASKED = Request((Message(Role.USER, "When does it close?"),), max_tokens=7, stops=("</a>",))
KEY = "sk-secret-0123"


def make_client(url: str, waits: list[float] | None = None, **settings: Any) -> Client:
    access = {k: settings.pop(k) for k in list(settings) if k in Access.__dataclass_fields__}
    sleep = (lambda s: None) if waits is None else waits.append
    return Client(Access(url, "toy", **access), sleep=sleep, **settings)


def answers(*replies: str | Fault):
    left = list(replies)
    lock = threading.Lock()

    def answer(body: dict[str, Any]) -> str | Fault:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return answer


def test_what_is_sent_and_what_comes_back() -> None:
    with OpenAIServer(lambda body: "at five</a> or six") as server:
        client = make_client(server.url, key=KEY, extra={"seed": 3, "stop": None})
        reply = client.complete(ASKED)
        client.close()
    assert reply == Reply("at five</a> or six", Finish.STOP, None, Usage(100, 10))
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
        Message(Role.SYSTEM, "Search."),
        Message(Role.USER, "Who?"),
        Message(Role.ASSISTANT, "<s>who</s>"),
        Message(Role.USER, "\n<i>Ada</i>\n"),
    )
    body = make_body("toy", Api.COMPLETIONS, Request(told, 5), {})
    assert body["prompt"] == "Search.\n\nWho?\n<s>who</s>\n<i>Ada</i>\n"
    with OpenAIServer(lambda body: "x") as server:
        client = make_client(server.url, api=Api.COMPLETIONS)
        assert client.complete(ASKED).text == "x"
        client.close()
    assert server.paths == ["/v1/completions"]


def test_a_reply_is_asked_for_once(tmp_path: Path) -> None:
    with OpenAIServer(answers("first", "second", "third")) as server:
        for number in range(2):
            client = make_client(server.url, cache=ReplyCache(tmp_path / "c.sqlite"), key=KEY)
            assert client.complete(ASKED).text == "first"
            # Another draw of the same request is another reply.
            again = Request(ASKED.messages, 7, ASKED.stops, draw=1)
            assert client.complete(again).text == "second"
            assert client.traffic.calls == (2 if number == 0 else 0)
            assert client.traffic.cached == (0 if number == 0 else 2)
            assert client.traffic.prompt_tokens == (200 if number == 0 else 0)
            client.close()
    assert len(server.bodies) == 2
    assert KEY.encode() not in (tmp_path / "c.sqlite").read_bytes()
    assert (tmp_path / "c.sqlite").stat().st_mode & 0o077 == 0


def test_a_file_that_is_no_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(EndpointFailure, match=r"c\.sqlite' cannot be used .*endpoint.cache=off"):
        ReplyCache(tmp_path / "c.sqlite")


@pytest.mark.parametrize("damage", ['{"text": 1}', "{", "[]", '{"text": "x", "finish": "odd"}'])
def test_a_damaged_reply_is_asked_for_again(tmp_path: Path, damage: str) -> None:
    with OpenAIServer(answers("first", "second")) as server:
        for text, num_sent in (("first", 1), ("second", 2), ("second", 2)):
            client = make_client(server.url, cache=ReplyCache(tmp_path / "c.sqlite"))
            assert client.complete(ASKED).text == text
            client.close()
            assert len(server.bodies) == num_sent
            if text == "first":
                with sqlite3.connect(tmp_path / "c.sqlite") as database:
                    database.execute("UPDATE replies SET reply = ?", (damage,))


def test_two_clients_share_a_cache_while_both_write(tmp_path: Path) -> None:
    asked = [Request((Message(Role.USER, f"q{i % 20}"),), 7) for i in range(40)]
    with OpenAIServer(lambda body: body["messages"][0]["content"]) as server:
        clients = [make_client(server.url, cache=ReplyCache(tmp_path / "c")) for _ in range(2)]
        waiting = [(r, client.start(r)) for r in asked for client in clients]
        for request, reply in waiting:
            assert reply.result().text == request.messages[0].content
        for client in clients:
            client.close()
        assert sum(client.traffic.cached for client in clients) == 80 - len(server.bodies)
        again = make_client(server.url, cache=ReplyCache(tmp_path / "c"))
        number = len(server.bodies)
        assert [again.complete(r).text for r in asked] == [r.messages[0].content for r in asked]
        again.close()
    assert len(server.bodies) == number


def test_a_reply_that_cannot_be_kept_is_not_lost(tmp_path: Path) -> None:
    """It is paid for. A full disk looks the same as this trigger."""
    cache = ReplyCache(tmp_path / "c.sqlite")
    with sqlite3.connect(tmp_path / "c.sqlite") as database:
        full = "CREATE TRIGGER full BEFORE INSERT ON replies BEGIN SELECT RAISE(FAIL, 'full'); END"
        database.execute(full)
    with OpenAIServer(lambda body: "fine") as server:
        client = make_client(server.url, cache=cache)
        assert client.complete(ASKED).text == "fine"
        client.close()
    assert client.traffic.unkept == 1 and "cannot be used (full)" in client.traffic.fault
    assert "1 reply not kept: the cache" in describe_traffic(client.traffic)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(status: int) -> None:
    waits: list[float] = []
    fault = Fault(status)
    asked_to_wait = Fault(status, headers={"Retry-After": "7"})
    with OpenAIServer(answers(fault, asked_to_wait, "fine")) as server:
        client = make_client(server.url, waits)
        assert client.complete(ASKED).text == "fine"
        client.close()
    assert client.traffic.calls == 3 and client.traffic.retries == 2
    assert 0 <= waits[0] <= 0.5 and waits[1] == 7.0


def test_waits_grow_and_have_an_end() -> None:
    retries = Retries(first_wait_s=1.0, max_wait_s=8.0)
    drawn = [[retries.wait_s(number) for _ in range(200)] for number in range(6)]
    assert [max(some) <= limit for some, limit in zip(drawn, (1, 2, 4, 8, 8, 8), strict=True)]
    assert max(drawn[3]) > 4
    # A server is not asked before it wants to be.
    assert retries.wait_s(0, 100.0) == 100.0 and retries.wait_s(0, -3.0) == 0.0
    assert retries.wait_s(0, 600.0) is None
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert read_retry_after({"retry-after": "Thu, 01 Jan 2026 00:01:00 GMT"}, now) == 60
    assert read_retry_after({"retry-after": "soon"}) is None
    assert read_retry_after({"retry-after": "nan"}) is None
    assert read_retry_after({}) is None


def test_a_server_that_asks_for_an_hour_is_not_asked_again() -> None:
    waits: list[float] = []
    with OpenAIServer(lambda body: Fault(429, headers={"Retry-After": "3600"})) as server:
        client = make_client(server.url, waits)
        with pytest.raises(EndpointFailure, match="answered 429: .* asks to wait 3600 s"):
            client.complete(ASKED)
        client.close()
    assert len(server.bodies) == 1 and waits == []


def test_a_wrong_key_ends_all_requests() -> None:
    with OpenAIServer(lambda body: Fault(401)) as server:
        client = make_client(server.url, key=KEY)
        for _ in range(3):
            with pytest.raises(EndpointFailure, match=r"answered 401.*endpoint.key_env"):
                client.complete(ASKED)
        client.close()
    assert len(server.bodies) == 1


def test_a_server_that_is_down_is_waited_for_a_few_times_only() -> None:
    with OpenAIServer(lambda body: "x") as server:
        url = server.url
    waits: list[float] = []
    client = make_client(url, waits, retries=Retries(max_retries=2))
    for number in range(5):
        with pytest.raises(EndpointFailure, match="cannot be reached"):
            client.complete(ASKED)
        assert len(waits) == min(2 * (number + 1), 6)
    client.close()


def test_a_server_that_is_gone_is_not_asked_for_ever() -> None:
    """Of one that hangs, each request would take the whole time limit."""
    left = iter([Fault(503)] * 15 + ["fine"])
    with OpenAIServer(lambda body: next(left, Fault(503))) as server:
        client = make_client(server.url, retries=Retries(max_retries=0))
        for _ in range(50):
            with suppress(EndpointFailure):
                client.complete(ASKED)
        with pytest.raises(EndpointFailure, match="20 requests in a row had no answer"):
            client.complete(ASKED)
        client.close()
    assert len(server.bodies) == 15 + 1 + 20, "one answer, and it counts from the beginning"


def test_the_end_of_a_client_waits_for_what_is_paid_for_and_for_nothing_else(
    tmp_path: Path,
) -> None:
    """Ctrl-C: a reply under way is kept; a server that asks to wait is not waited for."""

    def answer(body: dict[str, Any]) -> str | Fault:
        is_slow = body["messages"][0]["content"] == "slow"
        return "paid" if is_slow else Fault(503, headers={"Retry-After": "60"})

    slow, busy = (Request((Message(Role.USER, text),), 7) for text in ("slow", "busy"))
    with OpenAIServer(answer, delay_s=0.3) as server:
        client = Client(
            Access(server.url, "toy", concurrency=2), cache=ReplyCache(tmp_path / "c.sqlite")
        )
        waiting = [client.start(one) for one in (slow, busy, slow, busy)]
        while len(server.bodies) < 2:
            time.sleep(0.01)
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < PATIENCE_S
        assert waiting[0].result().text == "paid"
        with pytest.raises(EndpointFailure, match="was closed"):
            waiting[1].result(timeout=1)
        assert waiting[2].cancelled() and waiting[3].cancelled()
        assert len(server.bodies) == 2
        kept = make_client(server.url, cache=ReplyCache(tmp_path / "c.sqlite"))
        assert kept.complete(slow).text == "paid" and kept.traffic.cached == 1
        kept.close()


def test_the_end_of_a_client_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchrl.endpoints.client.PATIENCE_S", 0.1)
    with OpenAIServer(lambda body: "x", delay_s=2.0) as server:
        client = make_client(server.url)
        client.start(ASKED)
        while not server.bodies:
            time.sleep(0.01)
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < 1.5


def test_no_more_than_the_limit_is_under_way() -> None:
    with OpenAIServer(lambda body: "x", delay_s=0.05) as server:
        client = make_client(server.url, concurrency=3)
        waiting = [client.start(ASKED) for _ in range(12)]
        assert [one.result().text for one in waiting] == ["x"] * 12
        client.close()
    assert server.most_at_once == 3


@pytest.mark.parametrize(
    ("allowance", "num_sent"),
    [
        (Allowance(max_calls=3), 3),
        (Allowance(max_calls=0), 0),
        (Allowance(max_tokens=200), 2),
        (Allowance(max_cost=0.0006, prompt_price=1.0, completion_price=10.0), 3),
    ],
)
def test_a_budget_ends_what_is_sent(allowance: Allowance, num_sent: int) -> None:
    with OpenAIServer(lambda body: "x") as server:
        client = make_client(server.url, budget=Budget(allowance))
        for _ in range(num_sent):
            client.complete(ASKED)
        with pytest.raises(BudgetSpent, match=r"used up: max_\w+ = .* --set endpoint\.max_"):
            client.complete(ASKED)
        client.close()
    assert len(server.bodies) == num_sent == client.traffic.calls


def test_a_budget_holds_though_many_ask_at_once() -> None:
    with OpenAIServer(lambda body: "x", delay_s=0.02) as server:
        client = make_client(server.url, concurrency=8, budget=Budget(Allowance(max_calls=9)))
        waiting = [client.start(ASKED) for _ in range(30)]
        spent = [isinstance(one.exception(), BudgetSpent) for one in waiting]
        client.close()
    assert len(server.bodies) == 9 and spent.count(True) == 21
    assert client.traffic.failed == 0, "what was never sent has not failed"


@pytest.mark.parametrize("limits", [{"max_tokens": 500}, {"max_cost": 1.0}])
def test_tokens_that_nobody_counts_are_no_budget(limits: dict[str, Any]) -> None:
    """Else a limit on tokens or money would never end anything."""
    prices = {"prompt_price": 1.0, "completion_price": 1.0}
    said = Raw(b'{"choices": [{"message": {"content": "x"}}]}')
    with OpenAIServer(lambda body: said) as server:
        client = make_client(server.url, budget=Budget(Allowance(**limits, **prices)))
        assert client.complete(ASKED).usage is None
        with pytest.raises(BudgetSpent, match=r"does not say how many tokens.*max_calls"):
            client.complete(ASKED)
        client.close()
        assert len(server.bodies) == 1
        free = make_client(server.url)
        free.complete(ASKED)
        free.complete(ASKED)
        free.close()
    assert free.traffic.uncounted == 2
    assert "2 replies whose tokens it did not count" in describe_traffic(free.traffic)


def test_repetitions_are_paid_for_too() -> None:
    with OpenAIServer(lambda body: Fault(503)) as server:
        client = make_client(server.url, budget=Budget(Allowance(max_calls=2)))
        with pytest.raises(BudgetSpent):
            client.complete(ASKED)
        client.close()
    assert len(server.bodies) == 2
