"""The Gymnasium base of all search environments: a space of text and a task-by-task episode.

It speaks strings only and knows neither tokens nor tags: the protocol parses and wraps.
"""

from __future__ import annotations

import inspect
import string
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Literal, get_type_hints

from searchrl.contracts import Retriever, RetrieverFactory, TagProtocol
from searchrl.contracts.retrieving import RankingRetriever
from searchrl.core.episode import ANSWER, SEARCH, Action, Passage, Task, ToolCall
from searchrl.envs.results import Found, Ranks, find_result_problem, round_robin
from searchrl.envs.text_space import AtLeastOne, TurnEnv
from searchrl.errors import ConfigError, RetrieverFailure
from searchrl.retrieval.indexes import IndexCache

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def same_answer(prediction: str, gold: str) -> bool:
    """True if two answers agree once case, ASCII punctuation and spacing are ignored."""
    left, right = (
        " ".join(text.casefold().translate(_PUNCTUATION).split()) for text in (prediction, gold)
    )
    return left == right if left or right else prediction.strip() == gold.strip()


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The settings of every search environment.

    Attributes:
        topk: passages shown per search turn.
        shuffle: show them in random order (the same for one task and turn), so that the model
            has to read all of them.
        max_turns: model turns before the episode is truncated.
        world_seed: which world the tasks come from.
        render_mode: None or "ansi" (the transcript as text).
    """

    topk: AtLeastOne = 3
    shuffle: bool = False
    max_turns: AtLeastOne = 4
    world_seed: int = 0
    render_mode: Literal["ansi"] | None = None


class TextEnv(TurnEnv):
    """A search task per episode; the action is one raw model turn.

    A subclass says which tasks there are (`num_tasks`, `make_task`), how a task is put to the
    model (`make_prompt`) and which passages can be searched for it (`passages`), or how it is
    searched (`look_up`). A task must be a pure function of (split, index, world_seed).

    `retriever` is called once per corpus: `factory(passages)`; environments that are given one
    `IndexCache` share its indexes. `settings` are the fields of `settings_type`: `SearchSettings`,
    or what a subclass adds to them.
    """

    name: ClassVar[str] = "text"
    settings_type: ClassVar[type[SearchSettings]] = SearchSettings
    notes: tuple[str, ...] = ()
    """Sentences that a user should read beside the figures."""
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give the class a signature that names its settings, by which they are checked."""
        super().__init_subclass__(**kwargs)
        parameters = dict(inspect.signature(cls.__init__).parameters)
        parameters.pop("self")
        if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            kinds = get_type_hints(cls.settings_type, include_extras=True)
            settings = inspect.signature(cls.settings_type).parameters
            typed = {name: one.replace(annotation=kinds[name]) for name, one in settings.items()}
            parameters = {**inspect.signature(cls.__mro__[1]).parameters, **typed, **parameters}
        kept = [one for one in parameters.values() if one.kind is not one.VAR_KEYWORD]
        cls.__signature__ = inspect.Signature(sorted(kept, key=lambda one: one.kind))

    def __init__(
        self, *, protocol: TagProtocol, retriever: RetrieverFactory, **settings: Any
    ) -> None:
        self.settings = given = self.settings_type(**settings)
        super().__init__(protocol, given.max_turns, render_mode=given.render_mode)
        self.topk = given.topk
        self.world_seed = given.world_seed
        self.last_passages: tuple[Passage, ...] = ()
        self.alter: Callable[[Task, tuple[Passage, ...]], tuple[Passage, ...]] | None = None
        """Called with what a search found; returns what is shown. A wrapper sets it."""
        try:
            protocol.render_turn(Action(SEARCH, ("",)))
            protocol.opening(SEARCH)
        except ValueError as error:
            raise ConfigError(
                f"env {self.name} needs searches, and the protocol has none: {error}. Leave the "
                "protocol out, or name one that has them, such as think-search-answer"
            ) from error
        self._indexes = retriever if isinstance(retriever, IndexCache) else IndexCache(retriever)
        self._searched: Retriever | None = None
        """The index of the running episode, once it has searched."""
        self._gold_left: set[str] = set()
        self._num_tries = 0
        """Invalid turns since the last valid one."""

    @abstractmethod
    def make_task(self, split: str, index: int) -> Task:
        """Task `index` of `split`: pure; the index is in range."""
        raise NotImplementedError

    def make_prompt(self, task: Task) -> str:
        """The first message to the model; the question itself unless overridden."""
        return task.question

    @abstractmethod
    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        """The corpus searched for `task`: a key naming it, and its passages."""
        raise NotImplementedError

    def look_up(self, task: Task, action: Action, turn: str) -> Found:
        """Search for the queries of `action`, and show the passages, or raise `RetrieverFailure`.

        Override it to search in another way, and show what `_ordered` returns. `turn` is the text
        of the model.
        """
        results, ranks = self._search(task, action.queries)
        passages = self._ordered(task, results)
        return Found(passages, self.protocol.render_observation(passages, self.budget), ranks)

    def known_corpora(self) -> Sequence[tuple[str, Sequence[Passage]]]:
        """Corpora that are searched whatever the task is, each with its key; none by default."""
        return ()

    def build_indexes(self) -> None:
        """Make the retrievers of `known_corpora`, which may take minutes, before any episode."""
        for key, passages in self.known_corpora():
            self._indexes.build(key, passages, f"env {self.name}")

    def make_ask_task(self, question: str, split: str, options: dict[str, Any]) -> Task:
        """A task without a known answer, for `reset(options={"question": …})`."""
        return Task(
            id=f"{self.name}-ask",
            split=split,
            index=-1,
            question=question,
            kind="ask",
            env=self.name,
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode and return (prompt, {"task": Task}).

        `options` may hold `split`, `index`, or `question` for a task without a known answer.
        """
        super().reset(seed=seed)
        options = options or {}
        if "question" in options:
            split = self.ensure_split(options.get("split", self.splits[0]))
            task = self.make_ask_task(str(options["question"]), split, options)
        else:
            task = self.make_task(*self.choose(options))
        self._searched = None
        self._gold_left = set(task.gold_ids)
        self.last_passages, self._num_tries = (), 0
        return self.begin(task, self.make_prompt(task))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one raw model turn; never raises on its text, but `RetrieverFailure`.

        `info` holds `task`, `action`, `passages`, `signals` and `ranks` of the gold passages.
        """
        task = self.begin_turn()
        parsed = self.protocol.parse(action)
        observation, reward, self.last_passages = "", 0.0, ()
        ranks: Ranks = ()
        self._num_tries = 0 if parsed.kind in (ANSWER, SEARCH) else self._num_tries + 1
        is_given_up = self._num_tries == getattr(self.protocol, "max_tries", 0) > 0
        terminated = parsed.kind == ANSWER or is_given_up
        if parsed.kind == ANSWER:
            answer = str(parsed.payload or "")
            reward = float(any(same_answer(answer, gold) for gold in task.answers))
        elif parsed.kind == SEARCH:
            self.last_passages, observation, ranks = self.look_up(task, parsed, action)
            self._gold_left -= {passage.id for passage in self.last_passages}
        elif not is_given_up:
            unknown = f"This environment has no action '{parsed.kind}'."
            if isinstance(parsed.payload, ToolCall):
                unknown = f"There is no tool {parsed.payload.name!r} here; the only one is search."
            observation = self.protocol.render_notice(parsed.reason or unknown, self.budget)
        truncated = self.end_turn(action, observation, terminated)
        if self._is_over:
            self._searched = None
        info: dict[str, Any] = {"task": task, "action": parsed, "ranks": ranks, "signals": {}}
        info["passages"] = self.last_passages
        if gold := set(task.gold_ids):
            info["signals"] = {"gold_shown": 1.0 - len(self._gold_left) / len(gold)}
        return observation, reward, terminated, truncated, info

    def _search(self, task: Task, queries: Sequence[str]) -> tuple[tuple[Passage, ...], Ranks]:
        # Outside the `try`: a fault in the environment's own corpus is not the retriever's.
        key, passages = self.passages(task)
        try:
            if self._searched is None:
                self._searched = self._indexes.get(key, passages)
            retriever = self._searched
            results = retriever.search(list(queries), self.topk)
            if problem := find_result_problem(results, len(queries)):
                raise RetrieverFailure(f"env {self.name}: the retriever {problem}.")
            ranks: Ranks = ()
            if task.gold_ids and isinstance(retriever, RankingRetriever):
                ranks = tuple(retriever.ranks(list(queries), task.gold_ids))
            return tuple(round_robin(results, self.topk)), ranks
        except RetrieverFailure:
            raise
        except (Exception, SystemExit) as error:  # a plugin's sys.exit() must not end the run
            raise RetrieverFailure(
                f"env {self.name}: the retriever raised {type(error).__name__}: {error} "
                f"(task {task.id}, queries {list(queries)!r})."
            ) from error

    def _ordered(self, task: Task, passages: tuple[Passage, ...]) -> tuple[Passage, ...]:
        if self.alter is not None:
            passages = self.alter(task, passages)
        if not self.settings.shuffle:
            return passages
        order = Random(f"shuffle/{self.world_seed}/{task.id}/{self._num_turns}")
        return tuple(order.sample(passages, len(passages)))
