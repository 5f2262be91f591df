"""A small BEIR folder and a small pool, and retrievers whose figures can be counted by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from searchrl.contracts import Passage

FACTS = {
    "d1": ("Otter", "The otter lives in rivers and eats fish."),
    "d2": ("Heron", "The heron stands in rivers and waits for fish."),
    "d3": ("Beaver", "The beaver builds dams of wood."),
    "d4": ("Lynx", "The lynx lives in forests and hunts hares."),
    "d5": ("Hare", "The hare eats grass and sleeps in fields."),
    "d6": ("Mole", "The mole digs tunnels below fields."),
}
QUERIES = {"q1": "which animal builds dams", "q2": "what hunts hares", "q3": "who eats fish"}
QRELS = {"q1": {"d3": 1}, "q2": {"d4": 2, "d5": 1}, "q3": {"d1": 1, "d2": 1}}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write_beir(folder: Path, names: Mapping[str, str] | None = None) -> Path:
    """`names` renames passages."""
    called = names or {}
    (folder / "qrels").mkdir(parents=True)
    write_rows(
        folder / "corpus.jsonl",
        [{"_id": called.get(i, i), "title": t, "text": x} for i, (t, x) in FACTS.items()],
    )
    write_rows(folder / "queries.jsonl", [{"_id": i, "text": text} for i, text in QUERIES.items()])
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [
        f"{query}\t{called.get(passage, passage)}\t{score}"
        for query, judged in QRELS.items()
        for passage, score in judged.items()
    ]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def write_pool(folder: Path) -> Path:
    folder.mkdir(parents=True)
    write_rows(
        folder / "corpus.jsonl",
        [{"id": i, "title": title, "text": text} for i, (title, text) in FACTS.items()],
    )
    write_rows(
        folder / "questions.jsonl",
        [
            {"id": "h1", "question": "who eats fish in rivers", "golden_answers": ["otter"],
             "supporting_ids": ["d1", "d2"], "source": "made/train"},
            {"id": "h2", "question": "what hunts the hare that eats grass", "golden_answers": [],
             "supporting_ids": ["d4", "d6"], "source": "made/dev"},
            {"id": "h3", "question": "no gold", "golden_answers": ["x"], "supporting_ids": []},
        ],
    )  # fmt: skip
    return folder


class ByName:
    """Finds the passages with the given titles, in that order, whatever is asked; equal scores."""

    def __init__(self, passages: Sequence[Passage], titles: Sequence[str]) -> None:
        by_title = {passage.title: passage for passage in passages}
        self.found = [by_title[title] for title in titles]

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self.found[:k] for _ in queries]
