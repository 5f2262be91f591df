"""Connections: who never finishes a request is cut, and takes nobody's place until then."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from searchrl.trust import connections
from searchrl.trust.connections import MAX_HEADER_BYTES, make_http_server

START = b"POST / HTTP/1.1\r\nHost: here\r\n"
WHOLE = START + b"Content-Length: 2\r\n\r\nhi"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(connections, "HEADER_S", 1.0)
    monkeypatch.setattr(connections, "BODY_S", 1.5)
    bound = socket.create_server(("127.0.0.1", 0), backlog=128)
    server = make_http_server(answer, max_connections=3, lifespan="off", log_level="critical")
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield bound.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


def connect(port: int, sent: bytes) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=5)
    line.sendall(sent)
    return line


def read(line: socket.socket) -> bytes:
    with suppress(ConnectionError):
        return line.recv(100)
    return b""


@pytest.mark.parametrize("beginning", [b"", START, START + b"Content-Length: 9\r\n\r\nhi"])
def test_many_that_never_finish_stop_nobody_and_are_cut(port: int, beginning: bytes) -> None:
    with ExitStack() as stack:
        began = time.monotonic()
        many = [stack.enter_context(connect(port, beginning)) for _ in range(60)]
        for _ in range(5):
            with connect(port, WHOLE) as good:
                assert b" 200 " in read(good)
        assert [read(one) for one in many] == [b""] * 60
        assert time.monotonic() - began < 4


def test_a_header_that_never_ends_is_cut_in_bytes_and_in_time(port: int) -> None:
    with connect(port, START + b"X: " + b"x" * MAX_HEADER_BYTES) as long:
        assert b" 400 " in read(long)
    began = time.monotonic()
    with connect(port, START) as slow, suppress(ConnectionError):
        while time.monotonic() - began < 5:
            slow.sendall(b"x")
            time.sleep(0.1)
    assert time.monotonic() - began < 3


def test_a_connection_that_is_kept_has_limits_for_each_request(port: int) -> None:
    with connect(port, WHOLE) as kept:
        assert b" 200 " in read(kept)
        time.sleep(1.2)  # it is idle
        kept.sendall(WHOLE)
        assert b" 200 " in read(kept)
        kept.sendall(START)
        assert read(kept) == b""


def test_more_whole_requests_than_allowed_are_told_so(port: int) -> None:
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(port, WHOLE)) for _ in range(3)]
        assert all(b" 200 " in read(one) for one in lines)
        assert b" 503 " in read(stack.enter_context(connect(port, WHOLE)))
