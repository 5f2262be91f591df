"""The scripted policies of `corpus` and `multihop`, by their number of searches.

A policy that knows the gold answer may state it only if it was shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from searchrl.contracts import Expert, TagProtocol
from searchrl.core.episode import ANSWER, SEARCH, Action, Passage, Task
from searchrl.envs.reading import (
    UNKNOWN,
    about,
    find_options,
    names_in,
    nearest,
    read_answer,
    words_left,
)

MAX_QUERY_BYTES = 360
"""Longest query of a script: its turn fits 500 tokens even if every byte is a token."""


class Shown:
    """The passages that an episode has shown to a scripted policy."""

    def __init__(self) -> None:
        self._passages: dict[str, Passage] = {}
        self.last: tuple[Passage, ...] = ()
        """The passages of the last turn that had some."""

    def add(self, passages: Iterable[Passage]) -> None:
        """Take in the passages of the last turn."""
        self.last = tuple(passages) or self.last
        for passage in self.last:
            self._passages.setdefault(passage.id, passage)

    @property
    def passages(self) -> tuple[Passage, ...]:
        """All of them, in the order in which they came."""
        return tuple(self._passages.values())

    def has_all(self, ids: Iterable[str]) -> bool:
        """True if all these passages were shown."""
        return set(ids) <= self._passages.keys()

    def gold_answer(self, task: Task) -> str:
        """A gold answer of the task, if all its gold passages were shown, else `UNKNOWN`."""
        if not task.answers or not self.has_all(task.gold_ids):
            return UNKNOWN
        text = " ".join(_fold(f"{one.title} {one.text}") for one in self.passages)
        stated = [answer for answer in task.answers if f" {_fold(answer)} " in f" {text} "]
        return [*stated, task.answers[0] if task.gold_ids else UNKNOWN][0]


def _fold(text: str) -> str:
    """Words without case and marks, as far as answers are told apart by them."""
    return " ".join("".join(c if c.isalnum() else " " for c in text.casefold()).split())


Queries = Callable[[Task, Shown], Iterator[str]]
"""Yields the next query; looks at what was shown since the one before."""
Answers = Callable[[Shown, Task], str]


class ScriptedSearcher:
    """Sends the queries of `ask`, then answers with `answer`; keeps the last turn for that."""

    def __init__(
        self, env: Any, task: Task, protocol: TagProtocol, ask: Queries, answer: Answers
    ) -> None:
        self._env, self._task, self._protocol = env.unwrapped, task, protocol
        self._answer = answer
        self._shown = Shown()
        self._queries = ask(task, self._shown)
        self._num_turns = 0

    def act(self, observation: str) -> str:
        """Return the next turn; passages are read from the environment."""
        self._shown.add(self._env.last_passages)
        self._num_turns += 1
        query = next(self._queries, "") if self._num_turns < self._env.max_turns else ""
        if query:
            thought = "I look this up." if self._num_turns == 1 else "One part is still missing."
            return self._protocol.render_turn(Action(SEARCH, (query,)), thought)
        answer = self._answer(self._shown, self._task)
        thought = "I was not shown it." if answer == UNKNOWN else "That is what I was shown."
        return self._protocol.render_turn(Action(ANSWER, answer), thought)


def make_expert(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """Searches with names in the gold passages that were just found, never with titles that are
    still to be found; knows the answer, so it measures retrieval.
    """
    return ScriptedSearcher(env, task, protocol, _ask_patiently, Shown.gold_answer)


def make_no_search(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """Answers at once that it does not know: what the episode is worth without any evidence."""
    return ScriptedSearcher(env, task, protocol, lambda *_: iter(()), lambda *_: UNKNOWN)


def make_one_search(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """Searches with the question, and reads by matching words."""
    ask = fit_query([task.question])
    return ScriptedSearcher(env, task, protocol, lambda *_: iter([ask]), _read)


def make_two_search(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """Searches with the question and with what that led to, and reads by matching words."""
    return ScriptedSearcher(env, task, protocol, _ask_twice, _read)


def make_oracle_hop(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """Asks for the title of each gold passage: what the retriever gives to a perfect searcher."""
    gold: Sequence[Passage] = env.unwrapped.gold_passages(task)

    def ask(task: Task, shown: Shown) -> Iterator[str]:
        for passage in gold:
            if not shown.has_all([passage.id]):
                yield fit_query([passage.title or passage.text])

    return ScriptedSearcher(env, task, protocol, ask, Shown.gold_answer)


def _read(shown: Shown, task: Task) -> str:
    return read_answer(task.question, shown.passages, shown.last)


def _ask_twice(task: Task, shown: Shown) -> Iterator[str]:
    yield fit_query([task.question])
    if query := next_query(task.question, shown.passages):
        yield query


def _ask_patiently(task: Task, shown: Shown) -> Iterator[str]:
    sent, missing = {""}, set(task.gold_ids)
    query = fit_query([task.question])
    while query not in sent:
        sent.add(query)
        yield query
        gold = [passage for passage in shown.last if passage.id in missing]
        missing -= {passage.id for passage in gold}
        query = ""
        if missing and gold:
            names = [name for p in gold for name in names_in(p.text, besides=task.question)]
            query = fit_query(names or [p.title for p in gold])
        elif missing and len(sent) == 2:
            query = fit_query(names_in(task.question))


def next_query(question: str, passages: Sequence[Passage]) -> str:
    """The query after the question itself: a thing to compare that is missing, or a name that the
    nearest passage mentions and the question does not.
    """
    named = find_options(question) or tuple(names_in(question))
    missing = [name for name in named if about(name, passages) is None]
    if len(named) > 1 and len(missing) < len(named) and missing:
        return fit_query(missing[:1])
    if not passages:
        return ""
    bridge = nearest(question, passages)
    names = names_in(bridge.text, besides=f"{question} {bridge.title}")
    return fit_query([*names[:2], *words_left(question, bridge)]) if names else ""


def fit_query(parts: Sequence[str]) -> str:
    """Join parts into one query line of at most `MAX_QUERY_BYTES`, between words if it can be."""
    line = re.sub(r"\s+", " ", " ".join(parts)).strip()
    data = line.encode("utf-8", "surrogatepass")
    if len(data) <= MAX_QUERY_BYTES:
        return line
    cut = data[: MAX_QUERY_BYTES + 1].decode("utf-8", "ignore")
    return cut.rpartition(" ")[0] or data[:MAX_QUERY_BYTES].decode("utf-8", "ignore")
