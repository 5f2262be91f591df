"""Writes the report of a run as a folder of plain files: one page, its scripts and its data.

A page opened from disk may not fetch files, but it may add a script: so data are scripts that call
one function with a JSON text. Nothing in them is ever read as code or as HTML. `data/run.js` has
the first page, `index.js` a small row per rollout, `words.js` the texts of ids, `rollouts_0001.js`
200 rollouts with their tokens, loaded when one of them is opened.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from searchrl import __version__
from searchrl.errors import RunFolderError
from searchrl.files import replace_file
from searchrl.report.curves import draw_all
from searchrl.report.index import Index, describe_tokens
from searchrl.report.overview import describe_run
from searchrl.report.tokens import TokenTexts, open_texts
from searchrl.run_folder import Run, guarding
from searchrl.run_folder.place import filling
from searchrl.trust.texts import clean_json

PAGE = Path(__file__).resolve().parent / "page"

TEMPLATE = "index.html.jinja"

ROLLOUTS_PER_FILE = 200
_MARK = "report.json"
"""Says that a folder is a report, so that it may be written anew."""


class Report(NamedTuple):
    """A report that was written; `notes` say what the page cannot show of this run, and why."""

    page: Path
    num_rollouts: int
    num_bytes: int
    notes: tuple[str, ...]


def write_report(
    runs: Sequence[Run], folder: Path, arms: Mapping[str, Sequence[Run]] | None = None, **study: Any
) -> Report:
    """Write the report of a run into a folder that is new, empty, or an older report.

    Others are compared with the first on the tasks that both played, and have a curve together: one
    for each of `arms`, by default for each run. Of more than two, only the rollouts after training
    are there. `study` has the `name` of all, and the `heads`, `table` and `notes` about the arms.
    """
    with guarding(folder):
        is_taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        if is_taken and not (folder / _MARK).is_file():
            raise RunFolderError(
                f"'{folder}' is not empty and holds no report; name another with --out"
            )
    texts = [open_texts(run) for run in runs]
    phase = "after" if len(runs) > 2 else None
    with filling(folder) as beside:
        data = DataFiles(beside)
        replace_file(beside / _MARK, json.dumps({"searchrl": __version__}).encode())
        for number, run in enumerate(runs):
            for row in run.rollouts(phase):
                data.add(row, number, texts[number])
        data.write_rollouts(texts)
        described = [describe_run(run) for run in runs]
        charts = draw_all(arms or {str(run.path): [run] for run in runs}) if runs[1:] else {}
        for name, drawing in charts.items():
            replace_file(beside / "data" / f"{name}.svg", drawing.encode())
        data.write("run", {"runs": described, "charts": [*charts], **study})
        write_page(beside, study.get("name") or runs[0].path.resolve().name)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    notes = [fault for one in described for fault in one["faults"]]
    notes += _notes(runs, texts, data.index)
    return Report(folder / "index.html", len(data.index), size, tuple(notes))


class DataFiles:
    """The data files of a report. `versions` counts how often each was written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.versions: Counter[str] = Counter()
        self.clear()
        (folder / "data").mkdir()

    def clear(self) -> None:
        """Begin again with no rollouts."""
        self.index = Index()
        self._last: list[dict[str, Any]] = []
        """Rollouts of the last file, which is not full."""

    def add(self, row: Mapping[str, Any], run: int, texts: TokenTexts) -> None:
        """Take in a rollout of the run of this number; each full file is written."""
        self.index.add(row, run)
        self._last.append(describe_tokens(row, texts))
        if len(self._last) == ROLLOUTS_PER_FILE:
            self._write_last()
            self._last = []

    def write_rollouts(self, texts: Sequence[TokenTexts]) -> None:
        """Write the last file, and the index and words of all."""
        if self._last:
            self._write_last()
        self.write("words", [one.table for one in texts])
        self.write("index", {**self.index.to_dict(), "per_file": ROLLOUTS_PER_FILE})

    def _write_last(self) -> None:
        number = (len(self.index) - 1) // ROLLOUTS_PER_FILE + 1
        self.write(f"rollouts_{number:04d}", self._last)

    def write(self, name: str, value: Any) -> None:
        """Write one file: `SEARCHRL.give('NAME', 'JSON');`."""
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        # A text and not an object: `{"__proto__": …}` would be read as code.
        quoted = clean_json(text).replace("\\", "\\\\").replace("'", "\\'")
        script = f"SEARCHRL.give('{name}','{quoted}');\n".encode()
        replace_file(self.folder / "data" / f"{name}.js", script)
        self.versions[name] += 1


def _notes(runs: Sequence[Run], texts: Sequence[TokenTexts], index: Index) -> Iterator[str]:
    if not len(index):
        yield "no rollouts were recorded (log.rollouts is off, or it is no run of `train`)"
        return
    tasks: list[set[int]] = [set() for _ in runs]
    for run, task in zip(*(index.columns[name] for name in ("run", "task")), strict=True):
        tasks[run].add(task)
    if not set.intersection(*tasks):
        yield "the runs played no task in common: nothing can be compared task by task"
    if told := index.describe_segments():
        yield told
    for run, one in zip(runs, texts, strict=True):
        yield from one.faults
        if one.path is None:
            yield f"'{run.path}' has no tokenizer.json to read: tokens are shown by their numbers"


def write_page(folder: Path, name: str, *, is_live: bool = False) -> None:
    """Write the page and its scripts; a live one asks for new data as long as it is open."""
    (folder / "page").mkdir()
    for file in (*PAGE.glob("*.js"), *PAGE.glob("*.css")):
        replace_file(folder / "page" / file.name, file.read_bytes())
    # Autoescape: the name of a run is a stranger's text like any other.
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        (PAGE / TEMPLATE).read_text("utf-8")
    )
    text = template.render(name=name, version=__version__, is_live=is_live)
    replace_file(folder / "index.html", text.encode("utf-8", "backslashreplace"))
