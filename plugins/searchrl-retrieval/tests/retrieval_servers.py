"""Servers for the tests of retrieval over HTTP: ours in a thread, and others that are odd."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from searchrl_retrieval.http.app import Serving, bind, make_app, make_server, show_address
from searchrl_retrieval.http.wire import Limits

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
    bound = bind("127.0.0.1", 0)
    server = make_server(make_app(what, has_mcp=has_mcp))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield show_address(bound)
    finally:
        server.should_exit = True
        thread.join(15)
        bound.close()
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


class Asked(NamedTuple):
    """What an odd server was asked."""

    body: Any
    headers: dict[str, str]
    connection: tuple[str, int]


class Odd(NamedTuple):
    """What an odd server answers: a status, JSON or bytes, headers."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012
    delay_s: float = 0.0


@contextmanager
def odd_server(
    answer: Callable[[Any], Odd],
) -> Iterator[tuple[str, list[Asked]]]:
    """Any server; yields its address and the list of what it is asked."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            body = json.loads(raw)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked.append(Asked(body, headers, self.client_address))
            odd = answer(body)
            time.sleep(odd.delay_s)
            sent = odd.body if isinstance(odd.body, bytes) else json.dumps(odd.body).encode()
            self.send_response(odd.status)
            for name, value in odd.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            with suppress(OSError):  # whoever asked did not wait
                self.wfile.write(sent)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}/retrieve", asked
    finally:
        server.shutdown()
        server.server_close()


def documents(*queries: str, k: int = 1) -> list[list[dict[str, Any]]]:
    """The result of a stock server: for every query k documents that hold it."""
    return [
        [
            {"document": {"id": f"{q}/{i}", "contents": f'"{q}"\n{q} {i}'}, "score": 1.0}
            for i in range(k)
        ]
        for q in queries
    ]
