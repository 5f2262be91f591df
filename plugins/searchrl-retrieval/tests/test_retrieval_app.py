"""The retrieval server: stock clients, limits, many at once, failures, and its health."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
import httpx2
from retrieval_servers import TOWN, Gated, few, running
from searchrl_retrieval.http import serving
from searchrl_retrieval.http.batching import Batcher
from searchrl_retrieval.http.intake import Intake
from searchrl_retrieval.http.wire import Limits

from searchrl.contracts import Passage
from searchrl.retrieval import BM25Retriever

LINE = httpx2.Client(timeout=60, verify=False)
"""One for all: each reads the certificates of the system otherwise."""


def post(url: str, body: Any, **extra: Any) -> httpx2.Response:
    return LINE.post(f"{url}/retrieve", json=body, **extra)


def stock_search(url: str, queries: list[str], topk: int = 3) -> list[str]:
    """As Search-R1 asks and reads (generation.py: `_batch_search`, `_passages2string`)."""
    payload = {"queries": queries, "topk": topk, "return_scores": True}
    results = LINE.post(f"{url}/retrieve", json=payload).json()["result"]

    def to_text(found: list[dict[str, Any]]) -> str:
        text = ""
        for number, item in enumerate(found):
            lines = item["document"]["contents"].split("\n")
            text += f"Doc {number + 1}(Title: {lines[0]}) " + "\n".join(lines[1:]) + "\n"
        return text

    return [to_text(found) for found in results]


@pytest.fixture(scope="module")
def url() -> Any:
    """A server over a small town."""
    with running(limits=few()) as address:
        yield address


def test_the_stock_client_is_answered(url: str) -> None:
    assert stock_search(url, ["when does the park close?", "pool", "zeppelin", "学位"], 2) == [
        'Doc 1(Title: "The "old" park") The park closes at dusk.\nDogs are welcome.\n'
        'Doc 2(Title: "Library") The library closes at five.\n',
        'Doc 1(Title: "Pool") Swimming costs two coins.\n',
        "",
        'Doc 1(Title: "学位") 学位法规定了学位的授予。\n',
    ]
    bare = post(url, {"queries": ["pool"]}).json()
    assert bare == {"result": [[{"id": "p2", "contents": '"Pool"\nSwimming costs two coins.'}]]}
    assert post(url, {"queries": []}).json() == {"result": []}


def test_a_client_of_browsecomp_plus_is_answered(url: str) -> None:
    assert post(url, {"query": "pool"}).json() == {
        "result": [
            {"document": {"title": "Pool", "text": "Swimming costs two coins."}, "docid": "p2"}
        ]
    }
    assert post(url, {"query": "zeppelin"}).json() == {"result": []}


def test_more_passages_than_there_are_and_empty_queries_are_defined(url: str) -> None:
    (found, nothing) = post(url, {"queries": ["the closes", " "], "topk": 100}).json()["result"]
    assert [item["id"] for item in found] == ["p1", "p0"] and nothing == []


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_and_the_answer_arrives(
    url: str, is_chunked: bool
) -> None:
    """A client that is cut off while it sends would see a lost connection instead."""
    large = b'{"queries": ["' + b"x" * 8_000_000 + b'"]}'
    content = (large[i : i + 65_536] for i in range(0, len(large), 65_536))
    answer = LINE.post(f"{url}/retrieve", content=content if is_chunked else large)
    assert answer.status_code == 413
    assert "at most 20,000 bytes" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("GET", "/retrieve", b"", 405),
        ("POST", "/", b"{}", 404),
        ("POST", "/retrieve", b"", 400),
        ("POST", "/retrieve", b"\x00" * 19_000, 400),
        ("PUT", "/retrieve", b"x" * 30_000, 413),
        ("POST", "/mcp", b"{}", 404),
    ],
)
def test_other_requests_get_a_status_from_400(
    url: str, method: str, path: str, content: bytes, status: int
) -> None:
    assert LINE.request(method, url + path, content=content).status_code == status


def test_a_body_that_does_not_end_is_left() -> None:
    with running(limits=few(body_s=0.3)) as url:
        host, port = url.removeprefix("http://").split(":")
        line = http.client.HTTPConnection(host, int(port), timeout=10)
        line.putrequest("POST", "/retrieve")
        line.putheader("Content-Length", "50")
        line.endheaders()
        line.send(b'{"queries": ["a"')
        answer = line.getresponse()
        assert answer.status == 408 and b"longer than 0.3 s" in answer.read()
        assert answer.getheader("connection") == "close", "the rest of the body is no request"
        line.close()


def test_bodies_under_way_are_bounded_together() -> None:
    with running(limits=few(pending_bytes=100)) as url:
        answer = post(url, {"queries": ["x" * 150]})
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        assert post(url, {"queries": ["pool"]}).status_code == 200, "what was held is given back"


def test_an_answer_that_would_be_too_large_is_refused() -> None:
    with running(Gated(is_open=True), limits=Limits(answer_bytes=2000)) as url:
        assert post(url, {"queries": ["a"], "topk": 5}).status_code == 200
        answer = post(url, {"queries": ["a"], "topk": 90})
        assert answer.status_code == 413 and "ask for less" in answer.json()["detail"]


def test_a_server_with_a_key_asks_for_it() -> None:
    with running(key="sk-1") as url:
        assert post(url, {"query": "pool"}).status_code == 401
        wrong = {"authorization": "Bearer sk-2"}
        assert post(url, {"query": "pool"}, headers=wrong).status_code == 401
        right = {"authorization": "Bearer sk-1"}
        assert post(url, {"query": "pool"}, headers=right).status_code == 200
        assert LINE.get(f"{url}/health").status_code == 200


def test_a_page_in_a_browser_that_was_led_here_is_not_answered(url: str) -> None:
    """DNS rebinding: the name of the page now means this machine."""
    assert post(url, {"query": "pool"}, headers={"host": "evil.example"}).status_code == 400
    with running(is_local=False) as public:
        named = {"host": "search.example"}
        assert post(public, {"query": "pool"}, headers=named).status_code == 200


def test_a_page_of_another_site_is_not_answered_whatever_it_calls_us(url: str) -> None:
    body = {"query": "pool"}
    for foreign in ("http://evil.example", "null", f"{url}.evil.example", "http://localhost:1"):
        answer = post(url, body, headers={"origin": foreign})
        assert answer.status_code == 403 and "another site" in answer.json()["detail"]
    assert post(url, body, headers={"origin": url}).status_code == 200, "its own page of /docs"


def test_connections_that_send_no_headers_do_not_keep_others_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2,100 of them shut a server for good."""
    monkeypatch.setattr(serving, "IDLE_S", 0.5)
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 4)
    with running() as url, ExitStack() as stack:
        host, port = url.removeprefix("http://").split(":")
        lines = [socket.create_connection((host, int(port)), timeout=10) for _ in range(5)]
        for line, sent in zip(
            lines, ("", "", "POST /retrieve", "GET /health HTTP/1.1\r\n", ""), strict=True
        ):
            stack.callback(line.close)
            line.sendall(sent.encode())
        assert httpx2.get(f"{url}/health").status_code == 503
        for line in lines:
            assert line.recv(100) == b"", "it was closed"
        with httpx2.Client() as kept:
            assert kept.get(f"{url}/health").status_code == 200


def test_headers_that_come_byte_by_byte_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those of the first request on a connection nor those of the next one."""
    monkeypatch.setattr(serving, "IDLE_S", 0.3)
    with running() as url:
        host, port = url.removeprefix("http://").split(":")
        for first in (b"", b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"):
            with socket.create_connection((host, int(port)), timeout=10) as line:
                line.sendall(first)
                assert not first or line.recv(10_000).startswith(b"HTTP/1.1 200")
                began_s = time.monotonic()
                with suppress(ConnectionError):
                    for byte in b"POST /retrieve HTTP/1.1\r\n" * 4:
                        line.sendall(bytes([byte]))
                        time.sleep(0.05)
                assert time.monotonic() - began_s < 3


def test_health_says_what_is_served_and_its_limits(url: str) -> None:
    assert post(url, {"query": "pool"}).status_code == 200
    facts = LINE.get(f"{url}/health").json()
    assert facts["status"] == "ok" and facts["passages"] == len(TOWN) and facts["waiting"] == 0
    assert facts["limits"]["queries"] == 8 and facts["requests"] > 0


def ask_together(url: str, gated: Gated, bodies: dict[str, Any]) -> dict[str, httpx2.Response]:
    """Ask for all while the first search is kept waiting; the answers, by name."""
    answers: dict[str, httpx2.Response] = {}

    def ask(name: str) -> None:
        answers[name] = post(url, bodies[name])

    threads = [threading.Thread(target=ask, args=(name,)) for name in bodies]
    for thread in threads:
        thread.start()
    while LINE.get(f"{url}/health").json()["waiting"] < len(bodies):
        time.sleep(0.02)
    gated.gate.set()
    for thread in threads:
        thread.join()
    return answers


def test_requests_that_come_together_are_searched_together() -> None:
    gated = Gated()
    with running(gated) as url:
        bodies = {f"q{i}": {"queries": [f"q{i}"], "topk": 1 + i % 2} for i in range(20)}
        answers = ask_together(url, gated, bodies)
    assert len(gated.calls) == 3, "the one that came first, and the others of each k"
    for queries, k in gated.calls:
        assert {1 + int(query[1:]) % 2 for query in queries} == {k}, "one k in a batch"
    for name, body in bodies.items():
        (result,) = answers[name].json()["result"]
        assert [d["id"] for d in result] == [f"{name}/{i}" for i in range(body["topk"])]


def test_a_query_that_fails_fails_alone() -> None:
    gated = Gated()
    with running(gated) as url:
        bodies = {name: {"queries": [name]} for name in ("a", "b", "c", "d", "bad")}
        answers = ask_together(url, gated, bodies)
        assert {name: one.status_code for name, one in answers.items()} == {
            **dict.fromkeys(bodies, 200),
            "bad": 500,
        }
        assert any(len(queries) > 1 and "bad" in queries for queries, _ in gated.calls) or (
            gated.calls[0][0] == ["bad"]
        )
        assert "retriever toy: ValueError: a bad query" in answers["bad"].json()["detail"]
        assert LINE.get(f"{url}/health").json()["failed"] == 1


def test_requests_that_were_given_up_are_not_searched_one_by_one() -> None:
    """After a batch that failed, each of its requests is searched alone, if somebody waits."""
    gated = Gated()

    async def give_up() -> None:
        batcher = Batcher(gated)
        running_one = asyncio.create_task(batcher.run())
        asking = [asyncio.create_task(batcher.search([name], 1)) for name in ("bad", "b", "c")]
        while not gated.calls:
            await asyncio.sleep(0.01)
        for one in asking:
            one.cancel()
        await asyncio.wait(asking)
        gated.gate.set()
        assert len(await batcher.search(["d"], 1)) == 1
        running_one.cancel()

    asyncio.run(give_up())
    assert [queries for queries, _ in gated.calls] == [["bad", "b", "c"], ["d"]]


def test_a_body_that_is_cut_off_gives_back_what_was_held() -> None:
    """Else a server tells everybody after a while that there are too many requests."""
    chunks = [{"type": "http.request", "body": b"x" * 90, "more_body": True}]

    async def receive() -> Any:
        if chunks:
            return chunks.pop()
        raise asyncio.CancelledError

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("the body was never whole")

    async def ask() -> None:
        scope = {"type": "http", "path": "/retrieve", "headers": []}
        with pytest.raises(asyncio.CancelledError):
            await intake(scope, receive, answer)  # type: ignore[arg-type]

    intake = Intake(answer, few(pending_bytes=100))
    asyncio.run(ask())
    assert intake._pending_bytes == 0


def test_a_body_that_is_refused_is_not_held_while_the_rest_of_it_comes() -> None:
    chunks = [b"%d" % number * 60 for number in range(10, 13)]
    alone = sys.getrefcount(chunks[0])
    sent = iter(chunks)

    async def receive() -> Any:
        body = next(sent, None)
        if body is chunks[2]:  # the second one was too much
            holders = sys.getrefcount(chunks[0])
            assert holders == alone
        return {"type": "http.request", "body": body or b"", "more_body": body is not None}

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("the body is too large")

    async def send(message: Any) -> None:
        answers.append(message)

    answers: list[Any] = []
    scope = {"type": "http", "path": "/retrieve", "headers": []}
    asyncio.run(Intake(answer, few(body_bytes=200))(scope, receive, send))
    assert answers[0]["status"] == 413


def test_a_retriever_that_gives_more_than_k_or_ends_the_program_does_no_harm() -> None:
    class Odd(Gated):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            if "end" in queries:
                raise SystemExit(3)
            return super().search(queries, k + 5)

    with running(Odd(is_open=True)) as url:
        answer = post(url, {"queries": ["end"]})
        assert answer.status_code == 500 and "SystemExit: 3" in answer.json()["detail"]
        (found,) = post(url, {"queries": ["a"], "topk": 2}).json()["result"]
    assert [item["id"] for item in found] == ["a/0", "a/1"]


@pytest.mark.parametrize("result", [None, [], [[]], [["text"], []], "ab", [[], [], []]])
def test_a_retriever_that_breaks_its_contract_is_a_failure(result: Any) -> None:
    class Broken:
        def search(self, queries: Sequence[str], k: int) -> Any:
            return result

    with running(Broken()) as url:
        answer = post(url, {"queries": ["a", "b"]})
    assert answer.status_code == 500 and "the retriever" in answer.json()["detail"]


def test_a_search_that_hangs_is_given_up_and_health_says_so() -> None:
    gated = Gated()
    with running(gated, limits=Limits(search_s=0.3)) as url:
        answer = post(url, {"queries": ["a"]})
        assert answer.status_code == 504 and "longer than 0.3 s" in answer.json()["detail"]
        health = LINE.get(f"{url}/health")
        assert health.status_code == 503 and health.json()["status"] == "stuck"
        assert post(url, {"queries": ["given up"]}).status_code == 504
        assert LINE.get(f"{url}/health").json()["waiting"] == 0, "they are forgotten"
        gated.gate.set()
        while LINE.get(f"{url}/health").status_code != 200:
            time.sleep(0.02)
    assert [queries for queries, _ in gated.calls] == [["a"]], "nobody waited for the other one"


def test_a_large_request_takes_its_turns_with_the_others() -> None:
    gated = Gated(is_open=True)
    done: list[str] = []

    async def ask(batcher: Batcher, name: str, count: int) -> None:
        found = await batcher.search([f"{name}{i}" for i in range(count)], 1)
        assert [one.id for (one,) in found] == [f"{name}{i}/0" for i in range(count)]
        done.append(name)

    async def both() -> None:
        batcher = Batcher(gated, at_once=4)
        running_one = asyncio.create_task(batcher.run())
        await asyncio.gather(ask(batcher, "large", 40), ask(batcher, "small", 2))
        assert batcher.num_waiting == 0
        running_one.cancel()

    asyncio.run(both())
    assert done == ["small", "large"]
    assert max(len(queries) for queries, _ in gated.calls) == 4


def test_two_hundred_clients_at_once_get_their_own_answers() -> None:
    """The short version of benchmarks/bench_server.py."""
    corpus = [Passage(f"p{i}", f"word{i} and common words", f"T{i}") for i in range(200)]

    async def client(line: httpx2.AsyncClient, number: int, until: float) -> int:
        count = 0
        while time.monotonic() < until or not count:
            wanted = [f"word{number}", f"word{(number * 7 + count) % 200}"]
            body = {"queries": wanted, "topk": 1, "return_scores": True}
            answer = await line.post(f"{url}/retrieve", json=body)
            assert answer.status_code == 200, answer.text
            ids = [item["document"]["id"] for (item,) in answer.json()["result"]]
            assert ids == [name.replace("word", "p") for name in wanted]
            count += 1
        return count

    async def all_clients() -> int:
        limits = httpx2.Limits(max_connections=200, max_keepalive_connections=200)
        async with httpx2.AsyncClient(limits=limits, timeout=60, verify=False) as line:
            until = time.monotonic() + 1
            return sum(await asyncio.gather(*(client(line, i, until) for i in range(200))))

    with running(BM25Retriever(corpus)) as url:
        count = asyncio.run(all_clients())
        facts = LINE.get(f"{url}/health").json()
    assert count >= 200 and facts["requests"] == count and facts["failed"] == 0
    assert facts["waiting"] == 0 and facts["calls"] < count, "they are searched together"


def test_answers_are_json_of_plain_ascii(url: str) -> None:
    answer = post(url, {"queries": ["学位"]})
    assert answer.content.isascii() and json.loads(answer.content)["result"][0][0]["id"] == "p3"
