"""The disk cache of answers, one SQLite file of JSON values: no request is sent twice.

No key of an account is in it, and nothing that is read from it is run.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchrl.errors import EndpointFailure

_WAIT_S = 30.0  # for another process that writes


class JsonCache:
    """JSON values on disk.

    `advice` ends the error: what to do without the file. Every method raises `EndpointFailure` if
    the file cannot be made, or is no cache.
    """

    def __init__(self, path: Path, *, advice: str) -> None:
        self.path = path
        self._advice = advice
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.touch(mode=0o600)  # it holds prompts
            self._database = sqlite3.connect(path, timeout=_WAIT_S, check_same_thread=False)
            columns = "(key TEXT PRIMARY KEY, reply TEXT NOT NULL)"
            self._run(f"CREATE TABLE IF NOT EXISTS replies {columns}")
        except (OSError, sqlite3.Error) as error:
            raise self._failure(error) from error

    @staticmethod
    def key(url: str, body: Mapping[str, Any], draw: int = 0) -> str:
        """The key of an answer: two requests share it if the server could not tell them apart."""
        request = json.dumps([url, body, draw], sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(request.encode()).hexdigest()

    def get(self, key: str) -> Any:
        """The value that was kept under a key; None if there is none that can be read."""
        row = self._run("SELECT reply FROM replies WHERE key = ?", key)
        try:
            return None if row is None else json.loads(row[0])
        except (ValueError, TypeError, RecursionError):
            return None  # it is damaged: then it is asked for, and kept, again

    def put(self, key: str, value: Any) -> None:
        """Keep a value; None: nothing any more."""
        self._run("INSERT OR REPLACE INTO replies VALUES (?, ?)", key, json.dumps(value))

    def add(self, key: str, value: Any) -> Any:
        """Keep a value if there is none yet, and return the one that is kept."""
        self._run("INSERT OR IGNORE INTO replies VALUES (?, ?)", key, json.dumps(value))
        kept = self.get(key)
        return value if kept is None else kept

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _run(self, statement: str, *values: str) -> Any:
        try:
            with self._lock, self._database:
                return self._database.execute(statement, values).fetchone()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> EndpointFailure:
        return EndpointFailure(
            f"the file of replies '{self.path}' cannot be used ({error}); {self._advice}"
        )
