"""Writes the report of a run as a folder of plain files: one page, its scripts and its data.

A page opened from disk may not fetch files, but it may add a script: so data are scripts that call
one function with a JSON text. Nothing in them is ever read as code or as HTML. `data/run.js` has
the first page, `index.js` a small row per rollout, `words.js` the texts of ids, `rollouts_0001.js`
200 rollouts with their tokens, loaded when one of them is opened.
"""

from __future__ import annotations

import itertools
import json
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
    index = Index()
    with filling(folder) as beside:
        for part in ("data", "page"):
            (beside / part).mkdir()
        replace_file(beside / _MARK, json.dumps({"searchrl": __version__}).encode())
        rollouts = ((number, row) for number, run in enumerate(runs) for row in run.rollouts(phase))
        for number in itertools.count(1):
            shown: list[dict[str, Any]] = []
            for run, row in itertools.islice(rollouts, ROLLOUTS_PER_FILE):
                index.add(row, run)
                shown.append(describe_tokens(row, texts[run]))
            if not shown:
                break
            _write_data(beside, f"rollouts_{number:04d}", shown)
        _write_data(beside, "words", [one.table for one in texts])
        _write_data(beside, "index", {**index.to_dict(), "per_file": ROLLOUTS_PER_FILE})
        described = [describe_run(run) for run in runs]
        charts = draw_all(arms or {str(run.path): [run] for run in runs}) if runs[1:] else {}
        for name, drawing in charts.items():
            replace_file(beside / "data" / f"{name}.svg", drawing.encode())
        _write_data(beside, "run", {"runs": described, "charts": [*charts], **study})
        _write_page(beside, study.get("name") or runs[0].path.resolve().name)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    notes = [fault for one in described for fault in one["faults"]]
    notes += _notes(runs, texts, index)
    return Report(folder / "index.html", len(index), size, tuple(notes))


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


def _write_data(folder: Path, name: str, value: Any) -> None:
    """One data file: `SEARCHRL.give('NAME', 'JSON');`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A text and not an object: `{"__proto__": …}` would be read as code.
    quoted = clean_json(text).replace("\\", "\\\\").replace("'", "\\'")
    replace_file(folder / "data" / f"{name}.js", f"SEARCHRL.give('{name}','{quoted}');\n".encode())


def _write_page(folder: Path, name: str) -> None:
    for file in (*PAGE.glob("*.js"), *PAGE.glob("*.css")):
        replace_file(folder / "page" / file.name, file.read_bytes())
    # Autoescape: the name of a run is a stranger's text like any other.
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        (PAGE / TEMPLATE).read_text("utf-8")
    )
    text = template.render(name=name, version=__version__)
    replace_file(folder / "index.html", text.encode("utf-8", "backslashreplace"))
