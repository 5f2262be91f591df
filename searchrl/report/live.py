"""The report of a run that is still going: kept up to date with what the run adds, and served.

Nothing is written into the run folder, and nothing but the files of the report is served.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from searchrl.errors import DamagedError
from searchrl.report.folder import DataFiles, write_page
from searchrl.report.overview import describe_run
from searchrl.report.tokens import open_texts
from searchrl.run_folder import Run
from searchrl.run_folder.rollouts import FOLDER, read_rollouts, rollout_files
from searchrl.run_folder.state import find_state


class LiveReport:
    """The report of a run in an empty folder; `refresh` reads the files of the run that are new."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self._data = DataFiles(folder)
        self._texts = open_texts(run)
        self._seen: dict[Path, object] = {}
        """Files of rollouts that are in the report, as they were when they were read."""
        self._records: object = None
        self._live: object = None
        write_page(folder, run.path.resolve().name, is_live=True)
        self.refresh()

    def refresh(self) -> None:
        """Bring the data files up to date; what did not change is neither read nor written."""
        files = {path: _stamp(path) for path in rollout_files(self._run.path)}
        texts = open_texts(self._run) if self._texts.path is None else self._texts
        is_anew = any(files.get(path, seen) != seen for path, seen in self._seen.items())
        if is_anew or texts.path != self._texts.path:  # resumed, or it has a tokenizer now
            self._texts, self._seen = texts, {}
            self._data.clear()
        before, faults = len(self._seen), list[str]()
        new = [path for path in files if path not in self._seen]
        entries = self._run.files if new else {}
        for path in new:
            try:
                rows = list(read_rollouts(path, entries.get(f"{FOLDER}/{path.name}")))
            except DamagedError as error:  # or its checksum is on its way: it is tried again
                faults.append(str(error))
                continue
            for row in rows:
                self._data.add(row, 0, self._texts)
            self._seen[path] = files[path]
        if is_anew or len(self._seen) > before or self._live is None:
            self._data.write_rollouts([self._texts])
        self._write_records(faults)

    def _write_records(self, faults: list[str]) -> None:
        records = {path: _stamp(path) for path in self._run.path.glob("*.json*")}, faults
        if records != self._records:
            self._records = records
            described = describe_run(self._run)
            described["faults"] += faults
            self._data.write("run", {"runs": [described], "charts": []})
        versions = {name: n for name, n in self._data.versions.items() if name != "live"}
        live = {"versions": versions, "state": find_state(self._run)}
        if live != self._live:
            self._live = live
            self._data.write("live", live)


def _stamp(path: Path) -> tuple[int, ...]:
    """Facts that differ between two versions of a file; () for one that is gone."""
    with suppress(OSError):
        info = path.stat()
        return info.st_ino, info.st_mtime_ns, info.st_size
    return ()


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a report on a free port of loopback; yields its address, which nobody can guess."""
    token = secrets.token_hex(16)
    handler = partial(_Handler, token, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{token}/"
        finally:
            server.shutdown()


class _Handler(SimpleHTTPRequestHandler):
    """Answers with a file of the report, if the address has the token."""

    def __init__(self, token: str, *args: Any, **settings: Any) -> None:
        self._token = token
        super().__init__(*args, **settings)

    def translate_path(self, path: str) -> str:
        inside = path.removeprefix(f"/{self._token}/")
        return super().translate_path("no-token" if inside == path else inside)

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        with suppress(ConnectionError):  # the reader went on
            super().copyfile(source, outputfile)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal shows the address."""
