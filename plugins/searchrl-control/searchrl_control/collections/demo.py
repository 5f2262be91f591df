"""The made-up collection `demo`: small, offline, with questions that differ in what helps them.

Owns its texts. A third of the questions use the words of one passage (a single search is best), a
third need the passage that another one names (following is best), and a third use other words than
the passage (broadening is best). It is for first steps and tests; no figure of it says anything of
real collections.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random

DEMO = "demo"

_VERSION = 1
"""In the name of the folder: other texts are another folder."""

_NAMES = "Aldin Berrow Corva Dunmere Elsing Farrow Glenby Hartle Iving Jorvan Kelda Lorne".split()
_NAMES += (
    "Merrin Nostra Orwick Penlow Quarle Rostin Selby Tarven Ulster Varrow Wexley Yarlan".split()
)
_TRADES = (
    ("fishing", "trawling"),
    ("weaving", "textile"),
    ("mining", "quarrying"),
    ("brewing", "beer"),
)
_GOODS = "salt copper wool glass timber amber barley honey".split()
_LANDMARKS = "lighthouse abbey mill fortress observatory aqueduct".split()


def write_demo(cache: Path) -> Path:
    """The folder of the collection below `cache`; written if it is not there yet."""
    folder = cache / f"demo-{_VERSION}"
    if (folder / "corpus.jsonl").is_file():
        return folder
    half = folder.with_name(f"{folder.name}.{os.getpid()}.half")
    shutil.rmtree(half, ignore_errors=True)
    (half / "qrels").mkdir(parents=True)
    passages, questions = make_demo()
    _write(half / "corpus.jsonl", passages)
    _write(half / "queries.jsonl", [{"_id": q["_id"], "text": q["text"]} for q in questions])
    for split, wanted in (("train", 0), ("test", 1)):
        lines = ["query-id\tcorpus-id\tscore"]
        for number, question in enumerate(questions):
            if number % 2 == wanted:
                lines += [f"{question['_id']}\t{name}\t1" for name in question["gold"].split()]
        (half / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    try:
        half.rename(folder)
    except OSError:  # another process was quicker: its files are the same
        shutil.rmtree(half, ignore_errors=True)
    return folder


def make_demo() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The passages and the questions, whose `gold` are ids of passages, by a fixed seed."""
    rng = Random("searchrl-control/demo")
    people = [f"{rng.choice('AEILMNORST')}. {name}son" for name in _NAMES]
    passages: list[dict[str, str]] = []
    questions: list[dict[str, str]] = []
    for number, name in enumerate(_NAMES):
        trade, other = _TRADES[number % len(_TRADES)]
        good, sight = _GOODS[number % len(_GOODS)], _LANDMARKS[number % len(_LANDMARKS)]
        person, year = people[number], 1600 + 7 * number
        town, builder = f"town-{number}", f"person-{number}"
        passages += [
            {
                "_id": town,
                "title": name,
                "text": f"{name} is a town that lives from {trade} and sells {good}. "
                f"Its {sight} was designed by {person}.",
            },
            {
                "_id": builder,
                "title": person,
                "text": f"{person} was an architect, born in {year} on an island, who studied "
                f"law before turning to stone.",
            },
            {
                "_id": f"fair-{number}",
                "title": f"Fair of week {number}",
                "text": f"Every autumn, traders of {good} and {other} meet at a fair with music.",
            },
        ]
        asked = (
            (f"Which good does the town {name} sell?", town),
            (f"When was the architect of the {sight} of {name} born?", f"{town} {builder}"),
            (f"meeting of dealers in {other} and {good} with songs", f"fair-{number}"),
        )
        for kind, (text, gold) in enumerate(asked):
            questions.append({"_id": f"q{number}-{kind}", "text": text, "gold": gold})
    rng.shuffle(passages)
    return passages, questions


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
