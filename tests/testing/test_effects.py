"""The watch on files and connections, and the places it names."""

from __future__ import annotations

import os
import socket
import threading
from functools import partial
from pathlib import Path

import pytest

from searchrl.testing.probes.effects import watch_effects
from searchrl.testing.probes.places import locate


def test_writes_are_seen_and_reads_are_not(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    with watch_effects() as effects:
        (tmp_path / "old").read_text()
        (tmp_path / "new").write_text("x")
        (tmp_path / "folder").mkdir()
        (tmp_path / "new").rename(tmp_path / "renamed")
        (tmp_path / "renamed").unlink()
        Path(os.devnull).write_text("x")
    assert [Path(effect.target).name for effect in effects] == [
        "new", "folder", "new", "renamed", "renamed",
    ]  # fmt: skip
    assert {effect.kind for effect in effects} == {"write"}
    (tmp_path / "later").write_text("x")
    assert len(effects) == 5


def test_connections_are_seen_and_refused_by_every_watch() -> None:
    with watch_effects() as outer, watch_effects() as inner:
        with pytest.raises(ConnectionRefusedError, match="a check is without network"):
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with datagrams, pytest.raises(ConnectionRefusedError):
            datagrams.sendto(b"x", ("127.0.0.1", 9))
    assert [str(effect) for effect in inner] == ["opens a connection to 127.0.0.1:9"] * 2
    assert len(outer) == 2


def test_other_threads_are_left_alone_and_own_ones_are_not(tmp_path: Path) -> None:
    begin, done = threading.Event(), threading.Event()

    def other() -> None:
        begin.wait(10)
        (tmp_path / "other").write_text("x")
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with watch_effects() as effects:
        begin.set()
        assert done.wait(10)
        own = threading.Thread(target=(tmp_path / "own").write_text, args=("x",))
        own.start()
        own.join()
    thread.join()
    assert [Path(effect.target).name for effect in effects] == ["own"]


def test_a_thread_that_gets_the_id_of_an_ended_one_is_still_an_own_one(tmp_path: Path) -> None:
    begin = threading.Event()
    ended = threading.Thread(target=begin.wait, args=(10,))
    ended.start()
    with watch_effects() as effects:
        begin.set()
        ended.join()
        own: list[threading.Thread] = []
        while ended.ident not in {thread.ident for thread in own} and len(own) < 500:
            own.append(threading.Thread(target=(tmp_path / "own").write_text, args=("x",)))
            own[-1].start()
            own[-1].join()
    assert len(effects) == len(own)


def give(number: int) -> int:
    if number > 1:
        return number
    return -number


@pytest.mark.parametrize(("number", "line"), [(2, 2), (1, 3)])
def test_a_place_is_the_return_that_was_taken(number: int, line: int) -> None:
    place = locate(__file__, partial(give, number))
    assert place is not None and place.__traceback__ is not None
    assert place.__traceback__.tb_lineno == give.__code__.co_firstlineno + line


def test_no_place_where_nothing_of_the_file_returns() -> None:
    assert locate("elsewhere.py", lambda: 1) is None
    assert locate(__file__, lambda: 1 // 0) is None
