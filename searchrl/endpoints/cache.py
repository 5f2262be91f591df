"""The disk cache of replies: what was asked once is never sent again.

Owns one SQLite file. The key of a reply is the SHA-256 of the address, the whole body and the
number of the draw; the value is JSON. No key of an account is in it, and nothing that is read from
it is run (other disk caches unpickle what they find). Safe to use from several threads and
processes. Caller: `client`.
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


def default_cache() -> Path:
    """Where replies are kept if nothing else is said: a file in the user's own cache folder."""
    import platformdirs

    return platformdirs.user_cache_path("searchrl") / "endpoints.sqlite"


def cache_key(url: str, body: Mapping[str, Any], draw: int) -> str:
    """The key of a reply: two requests share it if the server could not tell them apart."""
    asked = json.dumps([url, body, draw], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(asked.encode()).hexdigest()


class ReplyCache:
    """Replies on disk. `section` is where its settings stand, for messages: `endpoint`, `judge`.

    Raises:
        EndpointFailure: if the file cannot be made, or is no cache; every method says so, too.
    """

    def __init__(self, path: Path, section: str = "endpoint") -> None:
        self.path = path
        self._section = section
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # it holds prompts
            self._database = sqlite3.connect(path, timeout=_WAIT_S, check_same_thread=False)
            with self._database:
                self._database.execute(
                    "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)"
                )
        except (OSError, sqlite3.Error) as error:
            raise self._failure(error) from error

    def get(self, key: str) -> Reply | None:
        """The reply that was kept under a key; None if there is none that can be read."""
        try:
            with self._lock:
                row = self._database.execute(
                    "SELECT reply FROM replies WHERE key = ?", (key,)
                ).fetchone()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        return None if row is None else _read(row[0])

    def put(self, key: str, reply: Reply) -> None:
        """Keep a reply."""
        kept = asdict(reply)
        try:
            with self._lock, self._database:
                self._database.execute(
                    "INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, json.dumps(kept))
                )
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _failure(self, error: Exception) -> EndpointFailure:
        return EndpointFailure(
            f"the cache of replies '{self.path}' cannot be used ({error}); remove the file, name "
            f"another with --set {self._section}.cache=FILE, or use none: "
            f"--set {self._section}.cache=off"
        )


def _read(text: str) -> Reply | None:
    """A kept reply; None if it is damaged: then it is asked for, and kept, again."""
    try:
        kept = json.loads(text)
        usage = None if kept["usage"] is None else Usage(**kept["usage"])
        reply = Reply(kept["text"], Finish(kept["finish"]), kept["stop"], usage)
    except (ValueError, KeyError, TypeError):
        return None
    is_whole = isinstance(reply.text, str) and isinstance(reply.stop, str | None)
    return reply if is_whole else None
