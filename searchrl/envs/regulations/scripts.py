"""Scripted policies for `regulations`: an expert, and two weak ones for a model to improve on.

Each writes raw turns for one episode. The expert decides from the observations only, so that a
model can imitate it: it never uses what it could not have read. `passive` answers without a search.
`clumsy` searches with a generic word, stops after the first hop, or guesses if the handbook is
silent. Deterministic per task. Used for evaluation and cold starts.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

from searchrl.contracts import Expert, TagProtocol
from searchrl.core.episode import ANSWER, SEARCH, Action, Task
from searchrl.envs.regulations.names import BUILDINGS, MONTHS, ValueKind, draw_value
from searchrl.envs.regulations.questions import NOT_REGULATED_ANSWER
from searchrl.envs.regulations.school import words_of

FIRST_THOUGHT = "I should look this up."
PASSIVE_THOUGHT = "I know this."
SILENT = "The handbook does not say."
GUESS = "I will guess."
WANTED, UNWANTED = "itself", "instead"
"""The word after the gist of a document that answers, and of one that does not."""

THIN_SHARE, EARLY_SHARE = 0.4, 0.2
"""How often the clumsy policy searches with a generic word, or stops early; else it guesses."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_SHAPES = {
    "time": r"\b\d{2}:\d{2}\b",
    "money": r"£\d+",
    "date": rf"\b\d{{1,2}} (?:{'|'.join(MONTHS)})\b",
    "room": r"\b[A-Z]\d{3}\b",
    "form": r"\b[A-Z]\d{2}\b",
    "fund": r"\b[A-Z][a-z]+ Fund\b",
    "building": rf"\b[A-Z][a-z]+ (?:{'|'.join(BUILDINGS)})\b",
    "person": r"\b(?!The |Ask |For )[A-Z][a-z]+ [A-Z][a-z]+\b",
    "number": r"(?<![\w£:])\d+(?![\w:])",
}
_SHAPE_OF = dict.fromkeys(("morning", "midday", "afternoon"), "time") | {"extension": "number"}
_FUNCTION_WORDS = frozenset(
    words_of(
        "a an and are at be before by can could do does for from have how i if in is it its long "
        "many may me much must my need of on one or our should so than that the their them there "
        "these they this to up us was we what when where which who whom whose will with within "
        "would you your"
    )
)


def make_expert(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """The policy to imitate: search hop by hop, answer from the evidence or say it is silent."""
    return _Expert(env, task, protocol)


def make_passive(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """Answers at once with a plausible value and never searches."""
    return _Passive(task, protocol)


def make_clumsy(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """Searches with a generic word, stops too early, or answers what the handbook does not say."""
    habit = Random(f"clumsy/{task.id}").random()
    if habit < THIN_SHARE:
        return _ThinSearcher(env, task, protocol)
    if habit < THIN_SHARE + EARLY_SHARE:
        return _EarlyStopper(env, task, protocol)
    return _Guesser(env, task, protocol)


def content_words(question: str, limit: int = 4) -> str:
    """A query from any question: its first words that are not function words."""
    words = [w for w in re.findall(r"[\w'-]+", question) if w.casefold() not in _FUNCTION_WORDS]
    return " ".join(words[:limit]) or question


class _Expert:
    """One search per hop; every later decision follows from the last observation."""

    def __init__(self, env: Any, task: Task, protocol: TagProtocol) -> None:
        self._env = env.unwrapped
        self._task = task
        self._protocol = protocol
        self._hop = -1
        self._queries = self._plan()
        bridge = task.meta.get("bridge", "")
        # The texts of which each hop must show one.
        self._wanted: list[tuple[str, ...]] = [(bridge,)] * (len(self._queries) - 1)
        self._wanted.append(task.answers)

    def act(self, observation: str) -> str:
        if self._hop < 0:
            return self._search(self.first_query(), FIRST_THOUGHT)
        found = self._find(observation)
        if not found:
            return self.not_found(observation)
        rank, text = found
        evidence = self._read(observation, rank, text)
        if self._hop + 1 < len(self._queries):
            return self.next_hop(evidence)
        return self._answer(text, evidence)

    def first_query(self) -> str:
        return self._queries[0]

    def next_hop(self, evidence: str) -> str:
        return self._search(self._queries[self._hop + 1], evidence)

    def not_found(self, observation: str) -> str:
        return self._answer(NOT_REGULATED_ANSWER, f"{self._read(observation)} {SILENT}".lstrip())

    def _plan(self) -> list[str]:
        queries = list(self._task.meta.get("queries", ()))
        num_hops = max(len(self._task.gold_ids), 1)
        if not queries:
            queries = [content_words(self._task.question)]
        if len(queries) < num_hops:
            titles = {p.id: p.title for p in self._env.passages(self._task)[1]}
            queries += [titles[gold] for gold in self._task.gold_ids[len(queries) :]]
        return queries[:num_hops]

    def _find(self, observation: str) -> tuple[int, str] | None:
        """Rank of the hop's gold article and the text found in it, if the observation shows it."""
        if not self._task.gold_ids:
            return None
        gold = self._task.gold_ids[self._hop]
        shown = observation.casefold()
        for rank, passage in enumerate(self._env.last_passages, 1):
            if passage.id == gold:
                for wanted in self._wanted[self._hop]:
                    if wanted.casefold() in shown:
                        return rank, wanted
        return None

    def _read(self, observation: str, answering: int = 0, wanted: str = "") -> str:
        """Say what is wanted, then read the documents in order until one answers (0: none does).

        Each document is quoted, named by its gist and judged. The answer comes directly after the
        sentence it is taken from, so that a reader sees the evidence. The verdict is the word after
        the gist: `itself` as after the wanted gist if both are the same, else `instead`. How well a
        small model learns this is in docs/log.md.
        """
        wanted_gists = self._task.meta.get("gists", ())
        gists = self._env.gists(self._task)
        is_asked = self._hop < len(wanted_gists)
        thought = [f"I need {wanted_gists[self._hop]} {WANTED}."] if is_asked else []
        for rank, passage in enumerate(self._env.last_passages[: answering or None], 1):
            if not re.search(rf"\bDoc {rank}\b", observation):
                break
            sentences = [s for s in _SENTENCE_END.split(passage.text) if s in observation]
            telling = [s for s in sentences if wanted and wanted.casefold() in s.casefold()]
            if sentences:
                thought.append(f"Doc {rank} says: {(telling or sentences)[0]}")
            verdict = WANTED if rank == answering else UNWANTED
            thought.append(f"That is {gists.get(passage.id, 'it')} {verdict}.")
        return " ".join(thought)

    def _search(self, query: str, thought: str) -> str:
        self._hop += 1
        return self._protocol.render_turn(Action(SEARCH, (query,)), thought)

    def _answer(self, answer: str, thought: str) -> str:
        return self._protocol.render_turn(Action(ANSWER, answer), thought)


class _Guesser(_Expert):
    """Never admits that the handbook is silent."""

    def not_found(self, observation: str) -> str:
        """Answer with some value that the passages show, of the right shape if there is one."""
        kind = self._task.meta.get("value_kind", "number")
        wanted = _SHAPE_OF.get(kind, kind)
        for shape in (wanted, *_SHAPES):
            for passage in self._env.last_passages:
                values = re.findall(_SHAPES[shape], passage.text)
                if values and values[0] in observation:
                    return self._answer(values[0], f"{self._read(observation)} {GUESS}")
        return super().not_found(observation)


class _ThinSearcher(_Guesser):
    """Types one generic word; if that finds nothing, guesses."""

    def first_query(self) -> str:
        thin = self._task.meta.get("thin_query", "")
        return thin or min(words_of(self._queries[0]), key=lambda word: (len(word), word))


class _EarlyStopper(_Expert):
    """Gives what the first hop finds as the answer."""

    def next_hop(self, evidence: str) -> str:
        bridge = self._task.meta.get("bridge")
        return self._answer(bridge, evidence) if bridge else super().next_hop(evidence)


class _Passive:
    def __init__(self, task: Task, protocol: TagProtocol) -> None:
        self._task = task
        self._protocol = protocol

    def act(self, observation: str) -> str:
        kind = ValueKind(self._task.meta.get("value_kind", ValueKind.NUMBER))
        guess = draw_value(kind, Random(f"passive/{self._task.id}"))
        answer = guess.removeprefix("form ")
        return self._protocol.render_turn(Action(ANSWER, answer), PASSIVE_THOUGHT)
