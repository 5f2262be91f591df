"""Scripted policies for `regulations`: the expert, and one that never searches.

The expert decides from the observations only, so that a model can imitate it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar

from searchrl.contracts import Expert, TagProtocol
from searchrl.core.episode import ANSWER, SEARCH, Action, Passage, Task
from searchrl.envs.regulations.questions import NOT_REGULATED_ANSWER
from searchrl.envs.regulations.world.names import ValueKind, draw_value
from searchrl.envs.regulations.world.prose import Statement, Status, condition_of
from searchrl.envs.regulations.world.searching import content_words

FIRST_THOUGHT = "I should look this up."
PASSIVE_THOUGHT = "I know this."
SILENT = "The handbook does not say."
WANTED, UNWANTED = "exactly", "instead"
"""The word after the gist of a rule that answers, and of one that does not."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def make_expert(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """The policy to imitate: search hop by hop, answer from the evidence or say it is silent."""
    return HandbookExpert(env, task, protocol)


def make_passive(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """Answers at once with a plausible value and never searches."""
    return _Passive(task, protocol)


class HandbookExpert:
    """One search per hop; every later decision follows from the last observation.

    In a generated handbook it looks for the statement of a rule; in a fixed one, of which nothing
    is known but its text, for a right answer in the passages that hold the evidence. Where a first
    search finds nothing, it searches once more, in the other words that the task holds.
    """

    searches_again: ClassVar[bool] = True

    def __init__(self, env: Any, task: Task, protocol: TagProtocol) -> None:
        self.env = env.unwrapped
        self.task = task
        self._protocol = protocol
        self._hop = -1
        self._again = task.meta.get("again", "") if self.searches_again else ""
        self._queries = self._plan()
        self._statements = self.env.statements(task)

    def act(self, observation: str) -> str:
        """Search hop by hop, then answer."""
        if self._hop < 0:
            return self._search(self._queries[0], FIRST_THOUGHT)
        thought, answer = self._read(observation)
        if not answer and self._again:
            query, self._again = self._again, ""
            return self._type(query, thought)
        if not answer:
            return self._answer(NOT_REGULATED_ANSWER, f"{thought} {SILENT}".lstrip())
        if self._hop + 1 < len(self._queries):
            return self._search(self._queries[self._hop + 1], thought)
        return self._answer(answer, thought)

    def _plan(self) -> list[str]:
        queries = list(self.task.meta.get("queries", ()))
        if "gists" in self.task.meta:
            return queries  # one for each hop
        num_hops = max(len(self.task.gold_ids), 1)
        if not queries:
            queries = [content_words(self.task.question)]
        if len(queries) < num_hops:
            titles = {p.id: p.title for p in self.env.passages(self.task)[1]}
            queries += [titles[gold] for gold in self.task.gold_ids[len(queries) :]]
        return queries[:num_hops]

    def _read(self, observation: str) -> tuple[str, str]:
        """Name the wanted rule, then read the documents in order until one answers.

        Returns the thought and the answer (empty: none). Each rule of a document is named by its
        gist and judged: `exactly` if it is the wanted one, else `instead`, so that a model finds
        the verdict behind the equal gist. The exceptions of the wanted rule are judged in the same
        way. Each value is named, too: so every document teaches where values stand. Where articles
        may replace others, all of them are read.
        """
        meta = self.task.meta
        if not self._statements:
            return self._read_fixed(observation)
        wanted, about = meta["gists"][self._hop], meta["abouts"][self._hop]
        under = condition_of(meta["abouts"][-1])
        need = f"{wanted} {WANTED}" + (f", {under} {WANTED}" if under else "")
        thought, says = [f"I need {need}."], None
        for rank, passage in enumerate(self.env.last_passages, 1):
            shown = [s for s in self._statements[passage.id] if s.clause in observation]
            if not shown and not _begins(rank, passage, observation):
                break  # the observation was cut before it
            thought.append(_judge(rank, shown, wanted, under))
            for one in shown:
                if one.about == about and (says is None or one.status is Status.NEW):
                    says = one
            if says is not None and not self.env.has_replaced:
                break
        return " ".join(thought), says.value.bare if says else ""

    def _read_fixed(self, observation: str) -> tuple[str, str]:
        """Quote the sentence of the evidence that holds an answer, or the name of the next hop."""
        if not self.task.gold_ids:
            return "", ""
        is_last = self._hop + 1 == len(self._queries)
        wanted = self.task.answers if is_last else (self.task.meta.get("bridge", ""),)
        gold = self.task.gold_ids[self._hop]
        for passage in self.env.last_passages:
            for sentence in _SENTENCE_END.split(passage.text) if passage.id == gold else ():
                for text in wanted:
                    if text.casefold() in sentence.casefold() and sentence in observation:
                        return f"It says: {sentence}", text
        return "", ""

    def _search(self, query: str, thought: str) -> str:
        self._hop += 1
        return self._type(query, thought)

    def _type(self, query: str, thought: str) -> str:
        return self._protocol.render_turn(Action(SEARCH, (query,)), thought)

    def _answer(self, answer: str, thought: str) -> str:
        return self._protocol.render_turn(Action(ANSWER, answer), thought)


def _begins(rank: int, passage: Passage, observation: str) -> bool:
    """True if a document without a rule is shown: not all protocols number them as `Doc 1`."""
    return bool(re.search(rf"\bDoc {rank}\b", observation)) or passage.text in observation


def _judge(rank: int, shown: Sequence[Statement], wanted: str, under: str) -> str:
    """The verdict on a document's rules, and on exceptions of the wanted rule, with values."""

    def judged(name: str, is_wanted: bool, one: Statement) -> str:
        return f"{name} {WANTED if is_wanted else UNWANTED}: {one.value.bare}"

    verdicts = []
    for one in shown:
        condition = condition_of(one.about)
        if not condition:
            name = f"{'new ' * (one.status is Status.NEW)}{one.gist}"
            verdicts.append(judged(name, one.gist == wanted, one))
        elif one.gist == wanted:
            verdicts.append(judged(condition, condition == under, one))
    return f"Doc {rank} {', '.join(verdicts) or 'no rule'}."


class _Passive:
    def __init__(self, task: Task, protocol: TagProtocol) -> None:
        self._task = task
        self._protocol = protocol

    def act(self, observation: str) -> str:
        kind = ValueKind(self._task.meta.get("value_kind", ValueKind.NUMBER))
        guess = draw_value(kind, Random(f"passive/{self._task.id}"))
        return self._protocol.render_turn(Action(ANSWER, guess), PASSIVE_THOUGHT)
