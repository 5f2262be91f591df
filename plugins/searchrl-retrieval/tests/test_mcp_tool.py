"""MCP over HTTP: the tool `search`, asked by the official client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("mcp")
pytest.importorskip("uvicorn")
import httpx2
from mcp import Client
from retrieval_servers import Gated, few, running


def call(url: str, *asked: dict[str, Any]) -> list[Any]:
    async def all_calls() -> list[Any]:
        async with Client(f"{url}/mcp") as client:
            (tool,) = (await client.list_tools()).tools
            assert tool.name == "search" and set(tool.input_schema["required"]) == {"query"}
            return [await client.call_tool("search", one) for one in asked]

    return asyncio.run(all_calls())


def test_any_client_can_search() -> None:
    with running(has_mcp=True) as url:
        found, nothing = call(url, {"query": "the park closes", "k": 1}, {"query": "zeppelin"})
        body = {"queries": ["pool"], "topk": 1}
        assert httpx2.post(f"{url}/retrieve", json=body).status_code == 200, "both in one process"
    assert not found.is_error
    (result,) = found.structured_content["results"]
    assert result["docid"] == "p1" and result["title"] == 'The "old" park'
    assert "Dogs are welcome." in found.content[0].text
    assert nothing.structured_content == {"results": []}


def test_what_is_beyond_a_limit_or_fails_is_an_error_of_the_tool() -> None:
    with running(Gated(is_open=True), has_mcp=True, limits=few(max_k=5)) as url:
        wrong = call(url, {"query": "a", "k": 6}, {"query": "a" * 300}, {"query": "bad"}, {"k": 1})
    texts = [one.content[0].text for one in wrong]
    assert all(one.is_error for one in wrong)
    assert "from 1 to 5" in texts[0] and "at most 200" in texts[1] and "a bad query" in texts[2]


def test_pages_in_browsers_and_large_bodies_are_refused() -> None:
    with running(has_mcp=True, limits=few()) as url:
        evil = httpx2.post(f"{url}/mcp", json={}, headers={"origin": "http://evil.example"})
        assert evil.status_code == 403
        assert httpx2.post(f"{url}/mcp", content=b"x" * 50_000).status_code == 413
