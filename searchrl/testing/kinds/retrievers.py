"""Criteria of retrievers: R1 to R11, over a small corpus in several scripts.

Owns what a retriever is held to: one result per query in their order, at most k passages of the
corpus, best first, the same ones every time, and that a failure is never an empty result. Does not
judge how well it finds. `searchrl check` runs them.
"""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from searchrl.contracts import Retriever, find_passages_problem
from searchrl.core.episode import Passage
from searchrl.plugins.deadline import call_with_deadline
from searchrl.plugins.registry import Registry, describe_error
from searchrl.testing.criteria import TIMEOUT_S, Criterion, NotApplicable, Problem, criterion
from searchrl.testing.probes.elsewhere import call_elsewhere
from searchrl.testing.probes.subject import PluginSubject
from searchrl.testing.probes.surroundings import other_surroundings

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


class RetrieverSubject(PluginSubject):
    """A registered retriever."""

    __slots__ = ()

    def make(self, passages: Sequence[Passage] = PASSAGES) -> Retriever:
        """A fresh retriever over `passages`."""
        made: Retriever = self.build(list(passages))
        return made

    def place(self, retriever: Retriever, queries: Sequence[str], k: int) -> object:
        """Where the plugin's file returns from a search; else its registration."""
        return self.returned_at(lambda: retriever.search(list(queries), k))


@criterion(
    "R1",
    "gives a list of passages for every query",
    "Any other result ends the episode as a failure of the retriever.",
)
def _gives_lists(subject: RetrieverSubject) -> Iterator[Problem]:
    retriever = subject.make()
    if not callable(getattr(retriever, "search", None)):
        yield Problem(
            f"the factory makes a {type(retriever).__name__} without a method search",
            "give it search(self, queries, k), which returns one list of Passage per query",
            type(retriever),
        )
        return
    for queries in ([], list(QUERIES[:1]), list(QUERIES[:2])):
        result: Any = retriever.search(list(queries), 3)
        at = subject.place(retriever, queries, 3)
        if not isinstance(result, list | tuple):
            yield Problem(
                f"search() returned {type(result).__name__} for {len(queries)} queries",
                "return one list of passages per query; [] for no query", at,
            )  # fmt: skip
            continue
        if len(result) != len(queries):
            yield Problem(
                f"search() gave {len(result)} results for {len(queries)} queries",
                "give one list per query, in their order; an empty one if nothing is found", at,
            )  # fmt: skip
        for one in result:
            if problem := find_passages_problem(one):
                yield Problem(
                    f"search() returned for a query {problem}",
                    "return the Passage objects that the factory was given", at,
                )  # fmt: skip
                return


@criterion(
    "R2",
    "answers a batch as it answers each query alone",
    "Rollouts are searched for together; what one finds must not depend on the others.",
)
def _batch_is_singles(subject: RetrieverSubject) -> Iterator[Problem]:
    retriever = _made(subject)
    for queries in (QUERIES, QUERIES[::-1], ("library", "zeppelin", "park", "library")):
        batch = retriever.search(list(queries), 3)
        for query, found in zip(queries, batch, strict=False):
            alone = retriever.search([query], 3)[0]
            if _ids(found) != _ids(alone):
                yield Problem(
                    f"query {query!r} finds {_ids(found)} in a batch of {len(queries)} and "
                    f"{_ids(alone)} alone",
                    "search for every query on its own, and return the results in their order",
                    subject.place(retriever, queries, 3),
                )
                return


@criterion(
    "R3",
    "gives at most k passages, none twice",
    "Observations are sized for k passages; the rest is cut off, and with it what mattered.",
)
def _at_most_k(subject: RetrieverSubject) -> Iterator[Problem]:
    retriever = _made(subject)
    for k in (1, 2, 3, 0, len(PASSAGES), 10_000):
        for query in (*QUERIES, "the"):
            found = _ids(retriever.search([query], k)[0])
            if len(found) > k:
                yield Problem(
                    f"query {query!r} with k={k} finds {len(found)} passages",
                    "return at most k of them, results[:k]", subject.place(retriever, [query], k),
                )  # fmt: skip
                return
            if len(set(found)) < len(found):
                yield Problem(
                    f"query {query!r} with k={k} finds a passage twice: {found}",
                    "return each passage once", subject.place(retriever, [query], k),
                )  # fmt: skip
                return


@criterion(
    "R4",
    "returns passages of its corpus",
    "Rewards and metrics know passages by their id; a stranger counts as not found.",
)
def _own_passages(subject: RetrieverSubject) -> Iterator[Problem]:
    retriever = _made(subject)
    known = {passage.id: passage for passage in PASSAGES}
    for query in (*QUERIES, *(text for text, _ in HARD_QUERIES)):
        for passage in _search_or_nothing(retriever, query):
            own = known.get(passage.id)
            if own is None or (own.text, own.title) != (passage.text, passage.title):
                what = "is no id of its corpus" if own is None else "has another text or title"
                yield Problem(
                    f"query {query[:40]!r} finds {passage.id!r}, which {what}",
                    "return the passages that the factory was given, with a score: "
                    "dataclasses.replace(passage, score=score)",
                    subject.place(retriever, [query], 3),
                )
                return


@criterion(
    "R5",
    "returns the best first",
    "Observations keep the first passages and cut the last; ranks are read as relevance.",
)
def _best_first(subject: RetrieverSubject) -> Iterator[Problem]:
    retriever = _made(subject)
    for query in (*QUERIES, "the park closes at five", "library books on weekdays"):
        found = retriever.search([query], len(PASSAGES))[0]
        scores = [passage.score for passage in found]
        at = subject.place(retriever, [query], len(PASSAGES))
        if not all(isinstance(s, numbers.Real) and not math.isnan(s) for s in scores):
            yield Problem(
                f"query {query!r} gives the scores {scores}; expected numbers",
                "give every passage a number as its score, or leave it at 0", at,
            )  # fmt: skip
            return
        if scores != sorted(scores, reverse=True):
            yield Problem(
                f"query {query!r} gives the scores {[round(s, 3) for s in scores]}, which rise",
                "sort by falling score; where less is better (a distance), give its negative", at,
            )  # fmt: skip
            return


@criterion(
    "R6",
    "answers whatever a model may ask",
    "Queries are model text. A query that makes the retriever raise ends an episode for nothing.",
)
def _never_raises(subject: RetrieverSubject) -> Iterator[Problem]:
    retriever = _made(subject, QUERIES[:2])
    for query, what in (*((query, "a plain query") for query in QUERIES), *HARD_QUERIES):
        try:
            result: Any = retriever.search([query], 3)
        except (Exception, SystemExit) as error:
            yield Problem(
                f"{what} ({query[:20]!r}): it raised {describe_error(error)}",
                "return an empty list for a query that matches nothing or cannot be read",
                error,
            )
            continue
        if len(result) != 1 or find_passages_problem(result[0]):
            yield Problem(
                f"{what} ({query[:20]!r}): it returned {result!r:.60}; expected a list of passages",
                "return an empty list for a query that matches nothing",
                subject.place(retriever, [query], 3),
            )


@criterion(
    "R7",
    "finds the same every time",
    "An evaluation that cannot be repeated compares nothing.",
)
def _is_repeatable(subject: RetrieverSubject) -> Iterator[Problem]:
    retriever = _made(subject)

    def found(one: Retriever) -> list[list[str]]:
        return find_ids(one, QUERIES)

    def found_anew() -> list[list[str]]:
        return found(subject.make())

    expected = found(retriever)
    limit_s = TIMEOUT_S / 3
    with other_surroundings(seed=2, clock=2.0e9, language="C"):
        elsewhen = call_with_deadline(found_anew, timeout_s=limit_s, owner="the retriever")
    for what, other in (
        ("asked again", found(retriever)),
        ("by a second retriever over the same corpus", found_anew()),
        ("with another seed, time and folder", elsewhen),
    ):
        for query, before, after in zip(QUERIES, expected, other, strict=True):
            if before != after:
                yield Problem(
                    f"query {query!r} finds {after} {what}, and {before} at first",
                    "draw with a generator seeded by a setting and the query, keep no state "
                    "between searches, and break ties by the order of the corpus",
                    subject.place(retriever, [query], 3),
                )
                return


@criterion(
    "R8",
    "works on any corpus",
    "Environments search in corpora of one text as well, and users begin with an empty folder.",
)
def _any_corpus(subject: RetrieverSubject) -> Iterator[Problem]:
    _made(subject)
    for what, passages in (
        ("an empty corpus", ()),
        ("a corpus of one passage", PASSAGES[:1]),
        ("a corpus of one empty text", (Passage("x", ""),)),
        ("a corpus of punctuation", (Passage("x", "…", "?!"), Passage("y", "—"))),
        ("a corpus of equal texts", tuple(Passage(str(i), "park bench") for i in range(9))),
    ):
        try:
            results: Any = subject.make(passages).search(["park", ""], 3)
        except (Exception, SystemExit) as error:
            yield Problem(
                f"{what}: it raised {describe_error(error)}",
                "find nothing where there is nothing to be found", error,
            )  # fmt: skip
            continue
        known = {passage.id for passage in passages}
        if len(results) != 2 or any(not set(_ids(one)) <= known for one in results):
            yield Problem(
                f"{what}: it returned {results!r:.80} for two queries",
                "give one list per query, of passages of this corpus",
                subject.place(subject.make(passages), ["park", ""], 3),
            )


@criterion(
    "R9",
    "leaves passages and queries as they are",
    "The corpus belongs to the environment, which shows and scores the same passages.",
)
def _does_not_mutate(subject: RetrieverSubject) -> Iterator[Problem]:
    _made(subject)
    passages, queries = copy.deepcopy(list(PASSAGES)), list(QUERIES)
    retriever: Retriever = subject.build(passages)
    retriever.search(queries, 3)
    at = subject.place(retriever, QUERIES, 3)
    if passages != list(PASSAGES):
        yield Problem(
            "the list of passages is another one afterwards",
            "copy it, tuple(passages), and set scores with dataclasses.replace", at,
        )  # fmt: skip
    if queries != list(QUERIES):
        yield Problem("the list of queries is another one afterwards", "copy it, list(queries)", at)


class _Unreadable(str):
    """A query that fails when it is looked at, as one that is asked of a server that is down."""

    def __getattribute__(self, name: str) -> Any:
        raise ConnectionError("this query cannot be read")

    __str__ = __iter__ = __len__ = __format__ = __getattribute__  # type: ignore[assignment]


@criterion(
    "R10",
    "raises when it fails",
    "A failure that looks like an empty result teaches the agent that searching is useless.",
)
def _fails_aloud(subject: RetrieverSubject) -> Iterator[Problem]:
    retriever = _made(subject)
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
            "let the exception through: the episode is then counted as failed, not as unsuccessful",
            subject.place(retriever, [_Unreadable(query)], 3),
        )


@criterion(
    "R11",
    "finds the same in another process",
    "Rollout workers index the corpus anew; they must find what the main process finds.",
)
def _same_elsewhere(subject: RetrieverSubject) -> Iterator[Problem]:
    expected = find_ids(_made(subject), QUERIES)
    found = call_elsewhere(
        subject.registry, find_in_passages, subject.entry.qualified, dict(subject.settings)
    )
    for query, before, after in zip(QUERIES, expected, found, strict=True):
        if before != after:
            yield Problem(
                f"query {query!r} finds {after} in another process, and {before} here",
                "do not depend on the order of a set, on id() or hash()",
                subject.place(subject.make(), [query], 3),
            )
            return


RETRIEVER_CRITERIA: tuple[Criterion[RetrieverSubject], ...] = (
    _gives_lists, _batch_is_singles, _at_most_k, _own_passages, _best_first, _never_raises,
    _is_repeatable, _any_corpus, _does_not_mutate, _fails_aloud, _same_elsewhere,
)  # fmt: skip
"""R1 to R11."""


def find_in_passages(registry: Registry, name: str, settings: Mapping[str, Any]) -> list[list[str]]:
    """The ids that a fresh retriever over `PASSAGES` finds for `QUERIES`."""
    return find_ids(registry.get("retriever", name).make(list(PASSAGES), **settings), QUERIES)


def find_ids(retriever: Retriever, queries: Sequence[str], k: int = 3) -> list[list[str]]:
    """The ids of what each query finds."""
    return [_ids(found) for found in retriever.search(list(queries), k)]


def _made(subject: RetrieverSubject, queries: Sequence[str] = QUERIES) -> Retriever:
    """A fresh retriever whose results can be read at all; R1 and R6 say why not."""
    try:
        retriever = subject.make()
        result: Any = retriever.search(list(queries), 3)
        is_readable = len(result) == len(queries) and not any(map(find_passages_problem, result))
    except (Exception, SystemExit) as error:
        raise NotApplicable("it cannot be made and asked; see R1 and R6") from error
    if not is_readable:
        raise NotApplicable("its results are no passages; see R1")
    return retriever


def _search_or_nothing(retriever: Retriever, query: str) -> Sequence[Passage]:
    """What a query finds; nothing where the retriever raises or gives no list, which R6 says."""
    try:
        (found,) = retriever.search([query], 3)
    except (Exception, SystemExit):
        return ()
    return () if find_passages_problem(found) else found


def _ids(found: Sequence[Passage]) -> list[str]:
    return [passage.id for passage in found]
