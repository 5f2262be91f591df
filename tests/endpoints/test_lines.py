"""Lines to servers: calls that begin evenly, and caches that are only read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from fixtures.openai_server import Fault, OpenAIServer

from searchrl.endpoints.cache import JsonCache, cache_key
from searchrl.endpoints.lines import Pace, line_to
from searchrl.endpoints.retries import Retries
from searchrl.endpoints.transport import Refused, Target
from searchrl.errors import EndpointFailure


class Clock:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


def test_calls_begin_evenly_and_a_pause_is_no_credit() -> None:
    clock = Clock()
    pace = Pace(4.0, clock.now, clock.sleep)
    began = []
    for _ in range(3):
        pace.wait()
        began.append(clock.time_s)
    clock.sleep(10.0)
    for _ in range(2):
        pace.wait()
        began.append(clock.time_s)
    assert began == [100.0, 100.25, 100.5, 110.5, 110.75]


def test_threads_share_a_pace() -> None:
    waits: list[float] = []
    pace = Pace(10.0, lambda: 5.0, waits.append)
    threads = [threading.Thread(target=pace.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(waits) == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_without_a_number_nobody_waits() -> None:
    waits: list[float] = []
    pace = Pace(None, lambda: 5.0, waits.append)
    for _ in range(5):
        pace.wait()
    assert waits == []


def test_same_server_same_line_and_other_limits_another() -> None:
    target = Target("http://localhost:1/x", "retriever")
    line = line_to(target, Retries(1), 5.0)
    assert line_to(target, Retries(1), 5.0) is line
    assert line_to(target, Retries(1), 6.0) is not line


def test_a_status_is_hopeless_where_the_server_is_said_to_mean_it() -> None:
    """Some servers answer 403 about one request, such as a query that they do not search for."""
    for hopeless, num_sent in ((frozenset({403}), 1), (frozenset({401}), 2)):
        with OpenAIServer(lambda body: Fault(403, "no")) as server:
            target = Target(server.url, "retriever", hopeless=hopeless, advice=((403, "look"),))
            line = line_to(target, Retries(0))
            for _ in range(2):
                with pytest.raises(Refused, match="answered 403: no; look$"):
                    line.post({})
            assert len(server.bodies) == num_sent


def test_a_cache_that_is_only_read_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "a name? with #.sqlite"
    cache = JsonCache(path)
    cache.put(cache_key("u", {"q": 1}), {"found": ["x"]})
    cache.close()
    written = path.read_bytes()
    path.chmod(0o400)
    read = JsonCache(path, section="retriever", is_read_only=True)
    assert read.get(cache_key("u", {"q": 1})) == {"found": ["x"]}
    assert read.get(cache_key("u", {"q": 2})) is None
    with pytest.raises(EndpointFailure, match=r"readonly.*--set retriever\.cache=off"):
        read.put("k", 1)
    read.close()
    assert path.read_bytes() == written


@pytest.mark.parametrize("content", [None, b"", b"not a database" * 100])
def test_a_cache_that_is_only_read_must_be_there(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "c.sqlite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EndpointFailure, match=r"c\.sqlite' cannot be used"):
        JsonCache(path, is_read_only=True)
    assert path.exists() == (content is not None)
