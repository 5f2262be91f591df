"""A server on this machine that answers as Exa does; what it sends has the shapes of Exa's answers.

`recorded/exa_answers.json` holds whole answers, written after the examples of Exa's reference.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from searchrl.contracts import Retriever

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "recorded" / "exa_answers.json").read_text("utf-8")
)
KEY = "7c0ffee0-feed-4bad-beef-0123456789ab"


class Sent(NamedTuple):
    """What the server answers: JSON or bytes, a status, headers."""

    body: Any
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012
    delay_s: float = 0.0


class Asked(NamedTuple):
    """What the server was asked."""

    body: dict[str, Any]
    headers: dict[str, str]
    path: str


class Log(list[Asked]):
    """All that was asked, and how much of it at the same time, at most."""

    most_at_once = 0


def failing(status: int, **more: Any) -> Sent:
    """What Exa answers where it does not search."""
    return Sent(RECORDED["errors"][str(status)], status, **more)


def recorded(body: dict[str, Any]) -> Sent:
    """The recorded answer of the category that is asked for."""
    return Sent(RECORDED[body.get("category", "nothing")])


def searching(retriever: Retriever) -> Callable[[dict[str, Any]], Sent]:
    """Answers with what a retriever finds, in Exa's form."""

    def answer(body: dict[str, Any]) -> Sent:
        (found,) = retriever.search([body["query"]], body["numResults"])
        results = [
            {"id": one.id, "url": one.id, "title": one.title, "highlights": [one.text]}
            for one in found
        ]
        return Sent({"requestId": "r", "results": results, "costDollars": {"total": 0.005}})

    return answer


@contextmanager
def exa_server(
    answer: Callable[[dict[str, Any]], Sent] = recorded,
) -> Iterator[tuple[str, Log]]:
    """A server; yields its address and what it is asked."""
    log, lock, now = Log(), threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                now[0] += 1
                log.most_at_once = max(log.most_at_once, now[0])
                headers = {name.lower(): value for name, value in self.headers.items()}
                log.append(Asked(body, headers, self.path))
            sent = answer(body)
            time.sleep(sent.delay_s)
            with lock:
                now[0] -= 1
            raw = sent.body if isinstance(sent.body, bytes) else json.dumps(sent.body).encode()
            with suppress(OSError):  # whoever asked did not wait
                self.send_response(sent.status)
                for name, value in sent.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/search", log
    finally:
        server.shutdown()
        server.server_close()
