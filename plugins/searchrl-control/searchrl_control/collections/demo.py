"""The made-up collection `demo`: small, offline, with questions that differ in what helps them.

Owns its texts. A third of the questions use the words of one passage (a single search is best), a
third need the passage that another one names (following is best), and a third use other words than
the passage (broadening is best). It is for first steps and tests; no figure of it says anything of
real collections.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

DEMO = "demo"

VERSION = 1
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


def write_demo(folder: Path) -> None:
    """Write the collection as a BEIR folder, whose folder `qrels` is there."""
    passages, questions = make_demo()
    asked = [{"_id": one["_id"], "text": one["text"]} for one in questions]
    for name, rows in (("corpus", passages), ("queries", asked)):
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    for split, of_split in (("train", questions[::2]), ("test", questions[1::2])):
        lines = [f"{one['_id']}\t{gold}\t1\n" for one in of_split for gold in one["gold"].split()]
        text = "query-id\tcorpus-id\tscore\n" + "".join(lines)
        (folder / "qrels" / f"{split}.tsv").write_text(text, encoding="utf-8")


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
