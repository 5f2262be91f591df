"""Criteria of retrievers: R1 to R11, over a small corpus in several scripts.

Owns what a retriever must do: one result per query in their order, at most k passages of the
corpus, best first, the same ones every time, and that a failure is never an empty result. Does not
judge how well it finds.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Sequence
from typing import Any

from searchrl.contracts import Retriever, find_passages_problem
from searchrl.core.episode import Passage
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import NotApplicable, Problem, criteria_in, criterion
from searchrl.testing.kinds.trials import Trial, Way, find_changes, find_mutations
from searchrl.testing.probes.subject import Subject

PASSAGES: tuple[Passage, ...] = (
    Passage("library", "The library opens at nine and closes at five on weekdays.", "Library"),
    Passage("library-2", "Books of the library may be kept for three weeks.", "Lending"),
    Passage("park", "Dogs must be kept on a lead in the park.", "Park rules"),
    Passage("park-2", "The park closes at dusk. The park has two ponds.", "Park hours"),
    Passage("pool", "The swimming pool is open from May to September.", "Pool"),
    Passage("market", "On Saturdays the market begins at seven in the morning.", ""),
    Passage("ferry", "The ferry to the island leaves every hour at the quay.", "Ferry"),
    Passage("twin-1", "The bell rings at noon.", "Bell"),
    Passage("twin-2", "The bell rings at noon.", "Bell"),
    Passage("zürich", "Das Rathaus von Zürich öffnet um acht Uhr.", "Öffnungszeiten"),
    Passage("图书馆", "学校图书馆每天八点开放。", "图书馆"),
    Passage("校规", "学生应当遵守学校的规章制度。", "校规"),
    Passage("blank", "", ""),
)
"""The corpus: titles and none, two equal texts, an empty one, several scripts, Unicode ids."""

QUERIES = (
    "library",
    "park closes",
    "when does the ferry leave the quay",
    "bell",
    "图书馆",
    "Zürich",
)
"""Queries that match."""

HARD_QUERIES: tuple[tuple[str, str], ...] = (
    ("", "an empty query"),
    (" \t\n ", "white space alone"),
    ("zeppelin", "a word that no passage holds"),
    ("?!…", "punctuation alone"),
    ("库", "a single Chinese character"),
    ("ＬＩＢＲＡＲＹ", "full-width letters"),
    ("Zu\u0308rich", "decomposed accents"),
    ("👩‍🔬", "an emoji of several code points"),
    ("مكتبة", "Arabic"),
    ("a\u0000b\ufeff\u2028", "NUL, byte order mark, line separator"),
    ('library AND (park OR "pool") -[x] ^2 *?~ {}:/\\', "the syntax of search engines"),
    ("library " * 3000, "thousands of words"),
    ("x" * 20000, "a word of 20000 letters"),
)
"""Queries that a model may well write, and what is hard about each."""


@criterion("R1")
def _gives_lists(subject: Subject) -> Iterator[Problem]:
    retriever = _make(subject)
    if not callable(getattr(retriever, "search", None)):
        name = type(retriever).__name__
        fix = "give it search(self, queries, k), which returns one list of Passage per query"
        yield Problem(f"the factory makes a {name} without a method search", type(retriever), fix)
        return
    for queries in ([], list(QUERIES[:1]), list(QUERIES[:2])):
        result: Any = retriever.search(list(queries), 3)
        at = _place(subject, retriever, queries, 3)
        if not isinstance(result, list | tuple):
            what = f"search() returned {type(result).__name__} for {len(queries)} queries"
            yield Problem(what, at)
            continue
        if len(result) != len(queries):
            yield Problem(f"search() gave {len(result)} results for {len(queries)} queries", at)
        for one in result:
            if problem := find_passages_problem(one):
                yield Problem(f"search() returned for a query {problem}", at)
                return


@criterion("R2")
def _batch_is_singles(subject: Subject) -> Iterator[Problem]:
    retriever = _make(subject)
    for queries in (QUERIES, QUERIES[::-1], ("library", "zeppelin", "park", "library")):
        batch = retriever.search(list(queries), 3)
        for query, found in zip(queries, batch, strict=False):
            (alone,) = retriever.search([query], 3)
            if _ids(found) != _ids(alone):
                yield Problem(
                    f"query {query!r} finds {_ids(found)} in a batch of {len(queries)} and "
                    f"{_ids(alone)} alone",
                    _place(subject, retriever, queries, 3),
                )
                return


@criterion("R3")
def _at_most_k(subject: Subject) -> Iterator[Problem]:
    retriever = _make(subject)
    for k in (1, 2, 3, 0, len(PASSAGES), 10_000):
        for query in (*QUERIES, "the"):
            found = _ids(retriever.search([query], k)[0])
            problem = f"{len(found)} passages" if len(found) > k else ""
            if len(set(found)) < len(found) <= k:
                problem = f"a passage twice: {found}"
            if problem:
                at = _place(subject, retriever, [query], k)
                yield Problem(f"query {query!r} with k={k} finds {problem}", at)
                return


@criterion("R4")
def _own_passages(subject: Subject) -> Iterator[Problem]:
    retriever = _make(subject)
    known = {passage.id: passage for passage in PASSAGES}
    for query in (*QUERIES, *(text for text, _ in HARD_QUERIES)):
        for passage in _search_or_nothing(retriever, query):
            own = known.get(passage.id)
            if own is None or (own.text, own.title) != (passage.text, passage.title):
                what = "is no id of its corpus" if own is None else "has another text or title"
                yield Problem(
                    f"query {query[:40]!r} finds {passage.id!r}, which {what}",
                    _place(subject, retriever, [query], 3),
                )
                return


@criterion("R5")
def _best_first(subject: Subject) -> Iterator[Problem]:
    retriever = _make(subject)
    for query in (*QUERIES, "the park closes at five", "library books on weekdays"):
        scores = [p.score for p in retriever.search([query], len(PASSAGES))[0]]
        problem = ""
        if not all(isinstance(s, numbers.Real) and not math.isnan(s) for s in scores):
            problem = f"{scores}; expected numbers"
        elif scores != sorted(scores, reverse=True):
            problem = f"{[round(s, 3) for s in scores]}, which rise"
        if problem:
            at = _place(subject, retriever, [query], len(PASSAGES))
            yield Problem(f"query {query!r} gives the scores {problem}", at)
            return


@criterion("R6")
def _never_raises(subject: Subject) -> Iterator[Problem]:
    retriever = _make(subject)
    for query, what in (*((query, "a plain query") for query in QUERIES), *HARD_QUERIES):
        asked = f"{what} ({query[:20]!r})"
        try:
            result: Any = retriever.search([query], 3)
        except (Exception, SystemExit) as error:
            yield Problem(f"{asked}: it raised {describe_error(error)}", error)
            continue
        if len(result) != 1 or find_passages_problem(result[0]):
            at = _place(subject, retriever, [query], 3)
            yield Problem(f"{asked}: it returned {result!r:.60}; expected a list of passages", at)


@criterion("R7")
def _is_repeatable(subject: Subject) -> Iterator[Problem]:
    yield from find_changes(subject, FOUND, Way.AGAIN, Way.ANEW, Way.ELSEWHEN)


@criterion("R8")
def _any_corpus(subject: Subject) -> Iterator[Problem]:
    for what, passages in (
        ("an empty corpus", ()),
        ("a corpus of one passage", PASSAGES[:1]),
        ("a corpus of one empty text", (Passage("x", ""),)),
        ("a corpus of punctuation", (Passage("x", "…", "?!"), Passage("y", "—"))),
        ("a corpus of equal texts", tuple(Passage(str(i), "park bench") for i in range(9))),
    ):
        try:
            retriever: Retriever = subject.make(list(passages))
            results = retriever.search(["park", ""], 3)
        except (Exception, SystemExit) as error:
            yield Problem(f"{what}: it raised {describe_error(error)}", error)
            continue
        known = {passage.id for passage in passages}
        if len(results) != 2 or any(not set(_ids(one)) <= known for one in results):
            at = _place(subject, retriever, ["park", ""], 3)
            yield Problem(f"{what}: it returned {results!r:.80} for two queries", at)


@criterion("R9")
def _does_not_mutate(subject: Subject) -> Iterator[Problem]:
    yield from find_mutations(subject, INDEXED)


class _Unreadable(str):
    """A query that fails when it is looked at, as one that is asked of a server that is down."""

    def __getattribute__(self, name: str) -> Any:
        raise ConnectionError("this query cannot be read")

    __str__ = __iter__ = __len__ = __format__ = __getattribute__  # type: ignore[assignment]


@criterion("R10")
def _fails_aloud(subject: Subject) -> Iterator[Problem]:
    retriever = _make(subject)
    query = next((query for query in QUERIES if retriever.search([query], 3)[0]), None)
    if query is None:
        raise NotApplicable("it finds nothing for any query of the check")
    try:
        result: Any = retriever.search([_Unreadable(query)], 3)
    except (Exception, SystemExit):
        return
    if not result or not result[0]:
        yield Problem(
            f"a query that cannot be read (it raises ConnectionError) gives {result!r}, as if "
            "nothing had been found",
            _place(subject, retriever, [_Unreadable(query)], 3),
        )


@criterion("R11")
def _same_elsewhere(subject: Subject) -> Iterator[Problem]:
    yield from find_changes(subject, FOUND, Way.ELSEWHERE)


RETRIEVER_CRITERIA = criteria_in(vars())
"""R1 to R11."""


def _make(subject: Subject) -> Retriever:
    """A fresh retriever over `PASSAGES`."""
    made: Retriever = subject.make(list(PASSAGES))
    return made


def _place(subject: Subject, retriever: Retriever, queries: Sequence[str], k: int) -> object:
    """Where the plugin's file returns from a search; else its registration."""
    return subject.returned_at(lambda: retriever.search(list(queries), k))


def _queries(subject: Subject) -> dict[str, str]:
    return {f"query {query!r}": query for query in QUERIES}


def _find(retriever: Retriever, query: str) -> list[str]:
    return _ids(retriever.search([query], 3)[0])


def _corpus(subject: Subject) -> dict[str, dict[str, Any]]:
    return {"a search": {"passages": [*PASSAGES], "queries": [*QUERIES]}}


def _index(subject: Subject, lists: dict[str, Any]) -> list[str]:
    found = subject.make(lists["passages"]).search(lists["queries"], 3)
    return [passage.id for one in found for passage in one]


FOUND = Trial(_queries, _find, _make)
INDEXED = Trial(_corpus, _index, make=lambda subject: subject)


def _search_or_nothing(retriever: Retriever, query: str) -> Sequence[Passage]:
    """What a query finds; nothing if the retriever raises or gives no list, which R6 says."""
    try:
        (found,) = retriever.search([query], 3)
    except (Exception, SystemExit):
        return ()
    return () if find_passages_problem(found) else found


def _ids(found: Sequence[Passage]) -> list[str]:
    return [passage.id for passage in found]
