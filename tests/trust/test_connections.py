"""Servers of ours: who is let in; who never finishes a request is cut, and takes nobody's place."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from searchrl.errors import ConfigError
from searchrl.trust import connections
from searchrl.trust.connections import MAX_HEADER_BYTES, HttpServer

START = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = START + b"Content-Length: 2\r\n\r\nhi"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()
        return await send({"type": "websocket.accept"})
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def running(host: str = "127.0.0.1", ws: str = "none", **settings: Any) -> Iterator[int]:
    http = HttpServer(host, 0, max_connections=3, **settings)
    server = http.make(answer, ws=ws, lifespan="off", log_level="critical")
    thread = threading.Thread(target=server.run, args=([http.socket],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield http.socket.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(connections, "HEADER_S", 1.0)
    monkeypatch.setattr(connections, "BODY_S", 1.5)
    with running() as port:
        yield port


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


UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def status_of(port: int, host: str = "localhost", path: str = "/", more: str = "") -> str:
    with connect(port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()) as line:
        return read(line).decode()[9:12]


@pytest.mark.parametrize("more", ["", UPGRADE])
def test_a_key_is_asked_for_and_health_needs_none(more: str) -> None:
    pytest.importorskip("websockets", reason="without it uvicorn has no websockets")
    good = "101" if more else "200"
    with running(key="sk-1", ws="auto") as port:
        for key, status in (("", "401"), ("Bearer sk-2", "401"), ("Bearer sk-1", good)):
            given = f"{more}Authorization: {key}\r\n"
            assert status_of(port, more=given) == status_of(port, path="/x", more=given) == status
        assert status_of(port, path="/health", more=more) == good


def test_a_page_in_a_browser_that_was_led_here_is_not_answered() -> None:
    """DNS rebinding: the name of the page now means this machine."""
    with running() as port:
        own = f"localhost:{port}"
        for host in (own, f"127.0.0.1:{port}", f"[::1]:{port}", "0.0.0.0"):
            assert status_of(port, host) == "200"
        for host in ("evil.example", f"evil.example:{port}", f"localhost.evil:{port}", "[::1"):
            assert status_of(port, host) == "403"
        for origin in ("http://evil.example", "null", f"http://{own}.evil", "http://localhost:1"):
            assert status_of(port, own, more=f"Origin: {origin}\r\n") == "403"
        assert status_of(port, own, more=f"Origin: http://{own}\r\n") == "200", "its page /docs"
    with running("0.0.0.0") as port:
        assert status_of(port, "search.example") == "200"


def test_an_address_that_is_taken_is_said() -> None:
    with running() as port, pytest.raises(ConfigError, match=f"--port {port} cannot be used"):
        HttpServer("127.0.0.1", port)
