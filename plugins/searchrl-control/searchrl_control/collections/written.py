"""Questions made of passages: of one, of two that belong together, and ones that mislead a search.

They are written into a BEIR folder, so that every command reads them. A question that copies its
passage trains an agent on word matching; one that is near a test question, or made of a passage
that answers one, trains it on the test. Such a question is left out and counted, never repaired.
Draws are functions of the seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from searchrl_retrieval.evaluation.collection import Judged

from searchrl import ConfigError
from searchrl.contracts import Passage
from searchrl.retrieval import tokenize
from searchrl_control.searching.library import Library
from searchrl_control.searching.reformulators import Neighbours
from searchrl_control.searching.writer import Ask, read_line

RUN = 6
"""Words of a passage in a row that are a copy."""

NEAR = 0.7
"""Shared words (Jaccard) from which a question is nearly a test question."""


class Leakage:
    """The test questions, and the passages that answer them: no question may give them away."""

    def __init__(self, test: Sequence[Judged]) -> None:
        self.passages = {name for one in test for name, grade in one.qrels.items() if grade > 0}
        self._questions = [frozenset(tokenize(one.text)) for one in test]

    def find_fault(self, question: str, sources: Sequence[Passage]) -> str:
        """The way in which a question leaks; "" for none."""
        words = tokenize(question)
        if not words:
            return "it has no word"
        for passage in sources:
            if passage.id in self.passages:
                return "it is made of a passage that answers a test question"
            if _runs(words, RUN) & _runs(tokenize(passage.text), RUN):
                return f"it copies {RUN} words in a row of its passage"
            title = tokenize(passage.title)
            if len(title) > 1 and tuple(title) in _runs(words, len(title)):
                return "it names the title of its passage"
        asked = frozenset(words)
        if any(len(asked & one) / len(asked | one) >= NEAR for one in self._questions):
            return "it is nearly a test question"
        return ""


def _runs(words: Sequence[str], count: int) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + count]) for at in range(len(words) - count + 1)}


class Kind(StrEnum):
    """The source of a question."""

    SINGLE = "single"
    """One passage."""
    MULTI = "multi"
    """A passage and the one that it names, or the nearest: both are needed."""
    ADVERSARIAL = "adversarial"
    """One passage, in words that another passage has more of."""


Writer = Callable[[Kind, Sequence[Passage], Random], str]
"""`write(kind, passages, rng)`: the text of a question; the first passages are those to be found.
The last passage of an adversarial one misleads."""

_WORDS = 4
"""Words of a passage that the template uses."""

_TRIES = 4
"""Draws for one question."""

_PROMPTS = {
    Kind.SINGLE: "Write a search question that this document answers.",
    Kind.MULTI: "Write a search question that needs both documents.",
    Kind.ADVERSARIAL: "Write a search question that the first document answers, in words that the "
    "second document has more of.",
}
_RULES = (
    "Do not name a title and do not copy more than three words in a row. Reply with the question "
    "alone, on one line."
)


class Written(NamedTuple):
    """A made-up question, and the ids of the passages that it should find.

    One with a `reason` gives itself or a test question away, and is not used.
    """

    id: str
    kind: Kind
    text: str
    sources: tuple[str, ...]
    reason: str = ""


def write_questions(
    library: Library,
    test: Sequence[Judged],
    count: int,
    kinds: Sequence[Kind],
    write: Writer,
    seed: int,
) -> list[Written]:
    """Make `count` questions, the kinds in turn; those that leak are among them, with the reason.

    Fewer are good if a draw leaks four times.
    """
    leakage = Leakage(test)
    usable = [
        place
        for place, passage in enumerate(library.passages)
        if passage.id not in leakage.passages and passage.text.strip()
    ]
    if not usable:
        raise ConfigError(
            "no question can be made: every passage of the collection answers a test question"
        )
    made: list[Written] = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        for attempt in range(_TRIES):
            rng = Random(f"searchrl-control/written/{seed}/{number}/{attempt}")
            shown = _draw(library, kind, rng.choice(usable))
            sources = shown[:1] if kind is Kind.ADVERSARIAL else shown
            text = write(kind, shown, rng).strip()
            ids = tuple(passage.id for passage in sources)
            fault = leakage.find_fault(text, sources)
            made.append(Written(f"made-{seed}-{number}", kind, text, ids, fault))
            if not fault:
                break
    return made


def save_questions(
    made: Sequence[Written], library: Library, test: Sequence[Judged], folder: Path
) -> None:
    """Write a BEIR folder: made-up training questions, and the test questions of the collection.

    `left_out.jsonl` has those that leak, and why.
    """
    good = [one for one in made if not one.reason]
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    passages = [{"_id": p.id, "title": p.title, "text": p.text} for p in library.passages]
    queries = [{"_id": q.id, "text": q.text, "kind": str(q.kind)} for q in good]
    queries += [{"_id": one.id, "text": one.text} for one in test]
    left_out = [one._asdict() for one in made if one.reason]
    for name, rows in (("corpus", passages), ("queries", queries), ("left_out", left_out)):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    train = [(q.id, name, 1) for q in good for name in q.sources]
    tested = [(one.id, *grade) for one in test for grade in one.qrels.items()]
    for split, judged in (("train", train), ("test", tested)):
        table = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judged)]
        (folder / f"qrels/{split}.tsv").write_text("\n".join(table) + "\n", encoding="utf-8")


class TemplateWriter:
    """Questions without a model: words of high value, in another order than in the passage.

    An adversarial one has neighbours in place of half of its words.
    """

    def __init__(self, library: Library) -> None:
        self._library, self._terms = library, library.terms
        self._neighbours = Neighbours(library)

    def __call__(self, kind: Kind, passages: Sequence[Passage], rng: Random) -> str:
        """Write one question."""
        sources = passages[:1] if kind is Kind.ADVERSARIAL else passages
        words = [word for passage in sources for word in self._words(passage, rng)]
        if kind is Kind.ADVERSARIAL:
            half = len(words) // 2
            lures = self._words(passages[-1], rng)[:half]
            words = [self._other(word) for word in words[half:]] + lures
        words = list(dict.fromkeys(words))
        rng.shuffle(words)
        return "what is known about " + " ".join(words) + "?" if words else ""

    def _words(self, passage: Passage, rng: Random) -> list[str]:
        """Some of the words of highest IDF of a passage's text that its title does not have."""
        title = self._terms.query(passage.title)
        best = sorted(self._terms.query(passage.text), key=lambda one: -self._terms.idf_V[one])
        numbers = [number for number in best if number not in title][: 3 * _WORDS]
        chosen = rng.sample(numbers, min(_WORDS, len(numbers)))
        return [self._as_written(number, passage) for number in chosen]

    def _as_written(self, number: int, passage: Passage) -> str:
        """A word of a passage for an index term, which is a stem; the stem if it has none."""
        words, terms = tokenize(passage.text), self._terms
        return next((word for word in words if number in terms.query(word)), terms.names[number])

    def _other(self, word: str) -> str:
        """A neighbour of a word, as some passage writes it; the word itself without any."""
        for number in self._terms.query(word):
            for near, _ in self._neighbours.of(number)[:1]:
                place = int(self._terms.counts_NV.getcol(near).indices[0])
                return self._as_written(near, self._library.passages[place])
        return word


def model_writer(ask: Ask) -> Writer:
    """A writer that asks a model."""

    def write(kind: Kind, passages: Sequence[Passage], rng: Random) -> str:
        shown = "\n\n".join(f"Document: {p.title}\n{p.text[:1000]}" for p in passages)
        return read_line(ask(f"{_PROMPTS[kind]} {_RULES}\n\n{shown}\n\nQuestion:"))

    return write


def _draw(library: Library, kind: Kind, place: int) -> tuple[Passage, ...]:
    """The passages of a question: one, and one that it names or that is nearest to it."""
    first = library.passages[place]
    if kind is Kind.SINGLE or len(library.passages) == 1:
        return (first,)
    links = library.links(place)
    if kind is Kind.MULTI and float(links.max()) >= 1.0:
        return (first, library.passages[int(np.argmax(links))])
    near = library.vectors_ND @ library.vectors_ND[place]
    near[place] = -np.inf
    return (first, library.passages[int(np.argmax(near))])
