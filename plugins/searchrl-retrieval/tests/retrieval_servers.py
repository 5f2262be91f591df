"""For the tests of retrieval over HTTP: our server in a thread, and what others send."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fixtures.openai_server import Fault
from searchrl_retrieval.http.app import Serving, make_app
from searchrl_retrieval.http.wire import Limits

from searchrl.api_client import HttpServer
from searchrl.contracts import Passage, Retriever
from searchrl.retrieval import BM25Retriever

TOWN = (
    Passage("p0", "The library closes at five.", "Library"),
    Passage("p1", "The park closes at dusk.\nDogs are welcome.", 'The "old" park'),
    Passage("p2", "Swimming costs two coins.", "Pool"),
    Passage("p3", "学位法规定了学位的授予。", "学位"),
    Passage("p4", "A text without a title."),
)


@contextmanager
def running(
    retriever: Retriever | None = None, *, has_mcp: bool = False, **settings: Any
) -> Iterator[str]:
    """Our server in a thread; yields its address. `settings` are those of `Serving`."""
    what = Serving("toy", retriever or BM25Retriever(TOWN), len(TOWN), **settings)
    http = HttpServer("127.0.0.1", 0)
    server = http.make(make_app(what, has_mcp=has_mcp))
    thread = threading.Thread(target=server.run, args=([http.socket],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield http.address
    finally:
        server.should_exit = True
        thread.join(15)
        http.socket.close()
        assert not thread.is_alive(), "the server does not end"


def few(**limits: Any) -> Limits:
    """Limits that a test can reach."""
    return Limits(**{"body_bytes": 20_000, "queries": 8, "query_chars": 200, **limits})


class Gated:
    """A retriever that answers when its gate is opened, and notes how it is called."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.gate = threading.Event()
        self.calls: list[tuple[list[str], int]] = []
        if is_open:
            self.gate.set()

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Every query finds passages that hold it and their rank; `bad` is none."""
        self.calls.append((list(queries), k))
        self.gate.wait(30)
        if "bad" in queries:
            raise ValueError("a bad query")
        return [
            [Passage(f"{q}/{i}", f"{q} {i}", q, 1.0 / (i + 1)) for i in range(k)] for q in queries
        ]


def sent(body: Any, status: int = 200, **headers: str) -> Fault:
    """The answer of another server: a text as it is, everything else as JSON."""
    return Fault(status, body if isinstance(body, str) else json.dumps(body), headers)


def documents(*queries: str, k: int = 1) -> list[list[dict[str, Any]]]:
    """The result of a stock server: for every query k documents that hold it."""
    return [
        [
            {"document": {"id": f"{q}/{i}", "contents": f'"{q}"\n{q} {i}'}, "score": 1.0}
            for i in range(k)
        ]
        for q in queries
    ]
