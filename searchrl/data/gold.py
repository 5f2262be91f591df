"""Gold passages of a corpus: those that questions name by their titles.

A title that no passage has counts as a gold passage that nothing can show; where a title is that of
several passages and no text decides, the gold passages of the question are unknown.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, count

from searchrl.core.episode import Passage
from searchrl.data.evidence import Paragraph, fold
from searchrl.data.questions import Question

ABSENT = "not in the corpus: "
"""The beginning of the id of a gold passage that the corpus lacks."""


class Pool:
    """The paragraphs that come with questions, as one corpus: each text once.

    The id of a passage is its title, with `#2`, `#3`, … for further texts under one title.
    """

    def __init__(self) -> None:
        self.passages: list[Passage] = []
        self._seen: set[tuple[str, int]] = set()
        self._taken: set[str] = set()

    def take(self, question: Question) -> Question:
        """Take in the paragraphs of a question; returns it with those that are gold alone."""
        for title, text, _ in question.evidence:
            if text is None or not (title or text):
                continue
            key = fold(title), hash(_squeeze(text))
            if key in self._seen:
                continue
            self._seen.add(key)
            name = title or "untitled"
            names = chain([name], (f"{name}#{number}" for number in count(2)))
            identity = next(one for one in names if one not in self._taken)
            self._taken.add(identity)
            self.passages.append(Passage(identity, text, title))
        return replace(question, evidence=_gold_of(question))


def find_gold(
    questions: Sequence[Question], passages: Iterable[Passage]
) -> tuple[list[Question], list[str]]:
    """The questions with the ids of their gold passages (or those they name), and notes."""
    titles = [p.title for q in questions if not q.gold_ids for p in _gold_of(q)]
    by_title: dict[str, list[Passage]] = {fold(title): [] for title in titles}
    for passage in passages if titles else ():
        if (title := fold(passage.title)) in by_title:
            by_title[title].append(passage)
    is_other = not any(by_title.values())
    identified = []
    for question in questions:
        gold = () if question.gold_ids or is_other else _gold_of(question)
        ids = [_identify(paragraph, by_title[fold(paragraph.title)]) for paragraph in gold]
        known = () if None in ids else tuple(dict.fromkeys(filter(None, ids)))
        identified.append(replace(question, gold_ids=question.gold_ids or known, evidence=()))
    absent = [one for one in identified if any(i.startswith(ABSENT) for i in one.gold_ids)]
    note = "the corpus lacks gold passages of {}; they count as not shown"
    return identified, [note.format(_count(absent))] if absent else []


def tell_unknown(questions: Sequence[Question], where: str) -> list[str]:
    """A sentence about questions without known gold passages; none if all have some."""
    without = [question for question in questions if not question.gold_ids]
    if not without:
        return []
    known = len(questions) - len(without)
    over = f"over {known:,} of {len(questions):,} questions" if known else "absent"
    return [
        f"support_recall and all_gold are {over}: gold passages are unknown of {_count(without)} "
        f"in {where}: none are named, or not by a title that one passage of the corpus has"
    ]


def _identify(paragraph: Paragraph, passages: Sequence[Passage]) -> str | None:
    """The id of a gold paragraph among passages of its title; None if it may be one of several."""
    if not passages:
        return ABSENT + paragraph.title
    if len(passages) == 1:
        return passages[0].id
    wanted = _squeeze(paragraph.text or "")
    return next((one.id for one in passages if _squeeze(one.text) == wanted), None)


def _gold_of(question: Question) -> tuple[Paragraph, ...]:
    return tuple(one for one in question.evidence if one.is_gold)


def _squeeze(text: str) -> str:
    return unicodedata.normalize("NFC", "".join(text.split()))


def _count(questions: Sequence[Question]) -> str:
    return f"{len(questions):,} of the questions (first {questions[0].path}:{questions[0].line})"
