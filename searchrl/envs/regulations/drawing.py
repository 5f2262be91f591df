"""Drawing of a `regulations` episode: the evidence that the answer takes.

Only the environment knows the text of an article that was never shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from searchrl.core.drawing import Drawing, Table
from searchrl.core.episode import Episode, Passage

MAX_TEXT = 300
"""Characters of an article."""


def draw_evidence(episode: Episode, passages: Sequence[Passage]) -> list[Drawing]:
    """The gold articles hop by hop, with text and the first turn that showed each."""
    articles = {passage.id: passage for passage in passages}
    shown: dict[str, int] = {}
    for number, turn in enumerate(episode.turns, 1):
        for passage in turn.passages:
            shown.setdefault(passage.id, number)
    rows = [
        (
            hop,
            name,
            _cut(articles[name].text),
            f"in turn {shown[name]}" if name in shown else "never",
        )
        for hop, name in enumerate(episode.task.gold_ids, 1)
        if name in articles
    ]
    columns = ("hop", "article", "what it says", "shown")
    return [Table("the evidence that the answer takes", columns, rows)] if rows else []


def _cut(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= MAX_TEXT else f"{plain[:MAX_TEXT]}…"
