"""The retrieval server: stock clients, MCP, limits, failures, who is let in, and its health."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
import httpx2
from retrieval_servers import TOWN, Gated, few, running
from searchrl_retrieval.http.wire import Limits

from searchrl.contracts import Passage

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
        ("POST", "/retrieve", b"\x00" * 19_000, 400),
        ("POST", "/retrieve", b'{"queries": ["a"], "topk": 301}', 422),
        ("POST", "/mcp", b"{}", 404),
    ],
)
def test_other_requests_get_a_status_from_400(
    url: str, method: str, path: str, content: bytes, status: int
) -> None:
    assert LINE.request(method, url + path, content=content).status_code == status


def test_the_retriever_gets_one_call_at_a_time_and_everybody_their_own_answer() -> None:
    class Slow(Gated):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            assert lock.acquire(blocking=False), "two calls at once"
            time.sleep(0.01)
            lock.release()
            return super().search(queries, k)

    def ask(name: str) -> None:
        (found,) = post(url, {"queries": [name], "topk": 2}).json()["result"]
        answers[name] = [item["id"] for item in found]

    lock, answers = threading.Lock(), {}  # type: ignore[var-annotated]
    with running(Slow(is_open=True)) as url:
        threads = [threading.Thread(target=ask, args=(f"q{i}",)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        facts = LINE.get(f"{url}/health").json()
    assert answers == {f"q{i}": [f"q{i}/0", f"q{i}/1"] for i in range(20)}
    assert facts["status"] == "ok" and facts["requests"] == 20 and facts["failed"] == 0
    assert facts["passages"] == len(TOWN) and facts["limits"]["max_k"] == 300


def test_a_front_makes_a_call_while_another_waits() -> None:
    gated = Gated()
    with running(gated, is_front=True) as url:
        asking = [threading.Thread(target=post, args=(url, {"queries": [q]})) for q in "ab"]
        for thread in asking:
            thread.start()
        until = time.monotonic() + 20
        while len(gated.calls) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        gated.gate.set()
        for thread in asking:
            thread.join()
    assert time.monotonic() < until, "the second call waited for the first"


def test_a_retriever_that_fails_gives_too_much_or_ends_the_program_does_no_harm() -> None:
    class Odd(Gated):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            if "end" in queries:
                raise SystemExit(3)
            return super().search(queries, k + 5)

    with running(Odd(is_open=True)) as url:
        for query, said in (("end", "SystemExit: 3"), ("bad", "toy: ValueError: a bad query")):
            answer = post(url, {"queries": [query]})
            assert answer.status_code == 500 and said in answer.json()["detail"]
        (found,) = post(url, {"queries": ["a"], "topk": 2}).json()["result"]
        assert LINE.get(f"{url}/health").json()["failed"] == 2
    assert [item["id"] for item in found] == ["a/0", "a/1"]


@pytest.mark.parametrize("result", [None, [], [[]], [["text"], []], "ab", [[], [], []]])
def test_a_retriever_that_breaks_its_contract_is_a_failure(result: Any) -> None:
    class Broken:
        def search(self, queries: Sequence[str], k: int) -> Any:
            return result

    with running(Broken()) as url:
        answer = post(url, {"queries": ["a", "b"]})
    assert answer.status_code == 500 and "the retriever" in answer.json()["detail"]


def test_a_search_that_hangs_is_given_up_and_so_are_those_behind_it() -> None:
    gated = Gated()
    with running(gated, limits=Limits(search_s=0.3)) as url:
        for query in ("a", "given up"):
            answer = post(url, {"queries": [query]})
            assert answer.status_code == 504 and "longer than 0.3 s" in answer.json()["detail"]
        gated.gate.set()
        assert post(url, {"queries": ["b"]}).status_code == 200
    assert [queries for queries, _ in gated.calls] == [["a"], ["b"]]


@pytest.fixture
def mcp() -> Any:
    return pytest.importorskip("mcp")


def call(mcp: Any, url: str, *asked: dict[str, Any]) -> list[Any]:
    """The tool `search` over MCP, asked by the official client."""

    async def all_calls() -> list[Any]:
        async with mcp.Client(f"{url}/mcp") as client:
            (tool,) = (await client.list_tools()).tools
            assert tool.name == "search" and set(tool.input_schema["required"]) == {"query"}
            return [await client.call_tool("search", one) for one in asked]

    return asyncio.run(all_calls())


def test_any_client_of_mcp_can_search(mcp: Any) -> None:
    with running(has_mcp=True) as url:
        asked = {"query": "the park closes", "k": 1}, {"query": "zeppelin"}
        found, nothing = call(mcp, url, *asked)
        body = {"queries": ["pool"], "topk": 1}
        assert LINE.post(f"{url}/retrieve", json=body).status_code == 200, "both in one process"
    assert not found.is_error
    (result,) = found.structured_content["results"]
    assert result["docid"] == "p1" and result["title"] == 'The "old" park'
    assert "Dogs are welcome." in found.content[0].text
    assert nothing.structured_content == {"results": []}


def test_what_is_beyond_a_limit_or_fails_is_an_error_of_the_tool(mcp: Any) -> None:
    with running(Gated(is_open=True), has_mcp=True, limits=few(max_k=5)) as url:
        asked = {"query": "a", "k": 6}, {"query": "a" * 300}, {"query": "bad"}, {"k": 1}
        wrong = call(mcp, url, *asked)
    texts = [one.content[0].text for one in wrong]
    assert all(one.is_error for one in wrong)
    assert "from 1 to 5" in texts[0] and "at most 200" in texts[1] and "a bad query" in texts[2]


@pytest.mark.usefixtures("mcp")
def test_pages_in_browsers_and_large_bodies_are_refused_by_the_tool_too() -> None:
    with running(has_mcp=True, limits=few()) as url:
        evil = LINE.post(f"{url}/mcp", json={}, headers={"origin": "http://evil.example"})
        assert evil.status_code == 403
        assert LINE.post(f"{url}/mcp", content=b"x" * 50_000).status_code == 413
