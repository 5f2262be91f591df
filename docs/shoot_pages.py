"""Takes the pictures of `searchrl inspect` that README.md and read-a-run.md show.

    python docs/shoot_pages.py [NAME ...]

writes the pages of docs/recorded_run/ and docs/collapsed_run/ to a folder that is removed again,
opens them in a headless Chromium and saves docs/pages/NAME.webp, all of them or those that are
named. Needs Chromium and chromedriver. Owns what is shown, how wide, and from where to where.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import two_runs
from recorded import COLLAPSED, DOCS, RECORD

from searchrl import Run
from searchrl.report.folder import write_report

if TYPE_CHECKING:
    from browser import Browser

PICTURES = DOCS / "pages"
WIDTH = 1000
"""Pixels: three columns of curves, and letters that are read well in a column of text."""
MARGIN = 8
"""Pixels around what is shown."""

RIGHT = f"train.1/{two_runs.RIGHT}"
"""A rollout of step 1 that searches twice and is right; both runs played it."""


class Shot(NamedTuple):
    """A picture: of which run, which view, and from the first element to the last one."""

    run: Path
    place: str
    first: str
    last: str
    before: str = ""
    """A script that runs in the page first: what a reader would click."""
    width: int = WIDTH


_CURVES = ("#curves", "#curves figure:nth-child(6)")
_GROUP = ("h1", ".side article:nth-child(3) .turns li:nth-child(1)")
_TOKENS = ("main > .box:last-child", "main > .box:last-child")
_LAST_STEP = "#/rollouts?phase=train&from=16&to=16"
_ADVANTAGE = """
    const list = document.getElementById("overlay");
    list.value = "advantage";
    list.dispatchEvent(new Event("change"));
    document.activeElement.blur();
"""
_LOOK_CLOSELY = """
    document.querySelectorAll(".by-E")[0].open = true;
    const [turn] = document.querySelectorAll(".by-M");
    [...turn.querySelectorAll("[data-place]")].find((one) => one.textContent === " should").click();
    document.activeElement.blur();
"""
"""What came back from the first search is unfolded; the token is chosen at which it decided."""

SHOTS = {
    "rollout": Shot(RECORD, f"#/rollout/{RIGHT}", *_TOKENS, before=_LOOK_CLOSELY, width=1200),
    "alarms": Shot(COLLAPSED, "#/", "#alarms", "#alarms"),
    "curves_healthy": Shot(RECORD, "#/", *_CURVES),
    "curves_collapsed": Shot(COLLAPSED, "#/", *_CURVES),
    "rollouts_collapsed": Shot(COLLAPSED, _LAST_STEP, "h1", "tbody tr:nth-child(3)", width=1200),
    "group_healthy": Shot(RECORD, f"#/group/{RIGHT}", *_GROUP),
    "group_collapsed": Shot(COLLAPSED, f"#/group/{RIGHT}", *_GROUP),
    "tokens_collapsed": Shot(COLLAPSED, f"#/rollout/{RIGHT}", *_TOKENS, before=_ADVANTAGE),
    "retrieval": Shot(RECORD, f"#/rollout/{RIGHT}", ".retrieval", ".retrieval"),
}
"""Name of a picture -> what it shows."""


def main(words: Sequence[str] | None = None) -> None:
    """Take the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SHOTS)}; all by default")
    names = parser.parse_args(words).names or list(SHOTS)
    sys.path.insert(0, str(DOCS.parent / "tests" / "report"))
    from browser import Browser

    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser() as window:
        window.media("light")
        pages = dict(write_pages(Path(folder), {SHOTS[name].run for name in names}))
        for name in names:
            path = PICTURES / f"{name}.webp"
            take(window, pages[SHOTS[name].run], SHOTS[name], path)
            print(f"wrote {path.name}: {path.stat().st_size // 1024} KB")


def write_pages(folder: Path, runs: set[Path]) -> Iterator[tuple[Path, Path]]:
    """The page of each run. It shows the path of the run, so that is one of the repository."""
    with contextlib.chdir(DOCS.parent):
        for run in runs:
            found = Run.open(run.relative_to(DOCS.parent))
            yield run, write_report([found], folder / run.name).page


def take(window: Browser, page: Path, shot: Shot, path: Path) -> None:
    """Save one picture."""
    window.resize(shot.width, 900)
    window.open(page, shot.place)
    window.run(shot.before)
    # So high that there is no scroll bar: without one the page is laid out again.
    window.resize(shot.width, window.run("return document.documentElement.scrollHeight") + 100)
    top, bottom = window.run(
        """
        const [first, last] = [...arguments].map((name) => document.querySelector(name));
        const place = (one) => one.getBoundingClientRect();
        return [place(first).top + scrollY, place(last).bottom + scrollY];
        """,
        shot.first,
        shot.last,
    )
    window.picture(path, (0, top - MARGIN, shot.width, bottom - top + 2 * MARGIN))


if __name__ == "__main__":
    main()
