"""The disk cache of answers: what was asked once is never sent again.

Owns one SQLite file of JSON values. The key of a reply is the SHA-256 of the address, the whole
body and the number of the draw. No key of an account is in it, and nothing that is read from it is
run (other disk caches unpickle what they find). Safe to use from several threads and processes.
Callers: `client`, and retrievers that keep what a server found.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from searchrl.endpoints.exchange import Finish, Reply, Usage
from searchrl.errors import EndpointFailure

_WAIT_S = 30.0
"""How long one process waits for another that writes."""


def default_cache(name: str = "endpoints") -> Path:
    """Where answers are kept if nothing else is said: a file in the user's own cache folder."""
    import platformdirs

    return platformdirs.user_cache_path("searchrl") / f"{name}.sqlite"


def cache_key(url: str, body: Mapping[str, Any], draw: int = 0) -> str:
    """The key of an answer: two requests share it if the server could not tell them apart."""
    asked = json.dumps([url, body, draw], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(asked.encode()).hexdigest()


class JsonCache:
    """JSON values on disk.

    Args:
        path: the file; it is made if it is not there.
        section: where its setting stands, for messages: `endpoint`, `retriever`.
        is_read_only: open a file that is there and change nothing in it.

    Raises:
        EndpointFailure: if the file cannot be made, or is no cache; every method says so, too.
    """

    def __init__(
        self, path: Path, *, section: str = "endpoint", is_read_only: bool = False
    ) -> None:
        self.path = path
        self._section = section
        self._lock = threading.Lock()
        try:
            if is_read_only:
                self._open(f"{path.absolute().as_uri()}?mode=ro")
                self._database.execute("SELECT key FROM replies LIMIT 1")
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # it holds prompts
            self._open(path.absolute().as_uri())
            with self._database:
                self._database.execute(
                    "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)"
                )
        except (OSError, sqlite3.Error) as error:
            raise self._failure(error) from error

    def _open(self, uri: str) -> None:
        self._database = sqlite3.connect(uri, timeout=_WAIT_S, check_same_thread=False, uri=True)

    def get(self, key: str) -> Any:
        """The value that was kept under a key; None if there is none that can be read."""
        try:
            with self._lock:
                row = self._database.execute(
                    "SELECT reply FROM replies WHERE key = ?", (key,)
                ).fetchone()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        try:
            return None if row is None else json.loads(row[0])
        except (ValueError, TypeError, RecursionError):
            return None  # it is damaged: then it is asked for, and kept, again

    def put(self, key: str, value: Any) -> None:
        """Keep a value."""
        try:
            with self._lock, self._database:
                self._database.execute(
                    "INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, json.dumps(value))
                )
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def drop(self, key: str) -> None:
        """Keep nothing under a key any more."""
        try:
            with self._lock, self._database:
                self._database.execute("DELETE FROM replies WHERE key = ?", (key,))
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _failure(self, error: Exception) -> EndpointFailure:
        section = self._section
        return EndpointFailure(
            f"the cache of replies '{self.path}' cannot be used ({error}); remove the file, name "
            f"another with --set {section}.cache=FILE, or use none: --set {section}.cache=off"
        )


class ReplyCache(JsonCache):
    """Replies of models on disk."""

    def get(self, key: str) -> Reply | None:
        """The reply that was kept under a key; None if there is none that can be read."""
        return _read(super().get(key))

    def put(self, key: str, value: Reply) -> None:
        """Keep a reply."""
        super().put(key, asdict(value))


def _read(kept: Any) -> Reply | None:
    """A kept reply; None if it is damaged."""
    try:
        usage = None if kept["usage"] is None else Usage(**kept["usage"])
        reply = Reply(kept["text"], Finish(kept["finish"]), kept["stop"], usage)
    except (ValueError, KeyError, TypeError):
        return None
    is_whole = isinstance(reply.text, str) and isinstance(reply.stop, str | None)
    return reply if is_whole else None
