"""The environment `retrieval-control`: an agent that decides how a question is searched.

A plain Gymnasium environment without text: `Discrete` actions, a `Dict` of arrays. Registered as
`retrieval-control` and as `searchrl/RetrievalControl-v0`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete, flatten
from numpy.typing import NDArray
from searchrl_retrieval.evaluation.collection import Judged

from searchrl.contracts import ACT, Passage, RetrieverFactory, TagProtocol, Task
from searchrl.contracts import Action as Act
from searchrl.envs import TextAdapter, ensure_index, ensure_split
from searchrl_control.collections.judged import TEST, TRAIN
from searchrl_control.environment.features import BOUND
from searchrl_control.environment.games import Moves, Position
from searchrl_control.environment.measures import ANY, ndcg, order_by, recall
from searchrl_control.environment.settings import Action, EnvSettings, ensure_settings
from searchrl_control.environment.worlds import ENV, MAX_POSITIONS, World, open_world
from searchrl_control.searching.library import Floats
from searchrl_control.searching.reformulators import Reformulator, as_shown

VALIDATION = "validation"

_TITLES = 5
_CHARACTERS = 160


class Turn(NamedTuple):
    """An episode under way: its question, the actions so far, and the worth of its list.

    `path` made the list, None before the first Search; `done` are all actions.
    """

    question: Judged
    path: Moves | None = None
    done: tuple[Action, ...] = ()
    num_illegal: int = 0
    worth: float = 0.0
    is_over: bool = False


class RetrievalControlEnv(gymnasium.Env[dict[str, Any], Any]):
    """Search, then change the search or end.

    The first action is Search; `info["action_mask"]` has the legal actions. An illegal one becomes
    Search, and `info["illegal"]` says so. Terminate ends the episode with the list that is there,
    and so does the last of `max_steps`: the limit is part of the task, and the observation shows
    the step. Nothing is truncated. `reformulation` is a `Reformulator` of your own; the settings
    are those of `EnvSettings`. The split `validation` has the last tenth of the training questions,
    which `train` then lacks; there and in `test` `difficulty` is always `any`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012
    name: ClassVar[str] = ENV
    splits: tuple[str, ...] = (TRAIN, VALIDATION, TEST)

    def __init__(
        self,
        *,
        reformulation: Reformulator | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        self.settings = ensure_settings(EnvSettings, settings, f"env {ENV}")
        self.max_steps = self.settings.max_steps
        self.render_mode = render_mode
        self.world = (
            World(self.settings, reformulation) if reformulation else open_world(self.settings)
        )
        self.actions = self.world.actions
        self.action_names: tuple[str, ...] = tuple(str(action) for action in self.actions)
        self.action_space = Discrete(len(self.actions))
        blocks: dict[str, gymnasium.Space[Any]] = {
            name: Box(-BOUND, BOUND, (width,), np.float32)
            for name, width in self.world.widths.items()
        }
        blocks["step"] = Discrete(self.max_steps + 1)
        blocks["taken"] = Box(0.0, 1.0, (len(self.actions),), np.float32)
        self.observation_space = Dict(blocks)
        self._order = lru_cache(None)(self._make_order)
        self._turn: Turn | None = None
        self._task: Task | None = None
        self.row = lru_cache(MAX_POSITIONS)(self._row)
        """An observation as a row [D], and the legal actions [A]; see `observe`."""

    def num_tasks(self, split: str) -> int:
        """The number of tasks of a split at this difficulty."""
        return len(self._order(ensure_split(ENV, split, self.splits)))

    def make_task(self, split: str, index: int) -> Task:
        """Task `index` of a split."""
        question = self.begin(split, index).question
        return Task(
            id=f"{ENV}-{self.world.name}-{split}-{question.id}",
            split=split,
            index=int(index),
            question=question.text,
            kind=self.world.name,
            gold_ids=tuple(name for name, grade in question.qrels.items() if grade > 0),
            env=ENV,
            meta={"question": question.id},
            difficulty=str(self.world.level(question)),
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin the episode of `options` (`split`, `index`); without an index, one is drawn."""
        super().reset(seed=seed)
        options = options or {}
        split, index = options.get("split", self.splits[0]), options.get("index")
        if index is None:
            index = int(self.np_random.integers(self.num_tasks(split)))
        self._task, self._turn = self.make_task(split, index), self.begin(split, index)
        return self.observe(self._turn.question, None, 0), self._tell(self._turn)

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Do one action; raises `ResetNeeded` outside an episode.

        `info` holds `task`, `action` (its payload is the name), `illegal`, `action_mask`,
        `passages` (the list, best first), `query` (the last search) and `signals`.
        """
        before = self._turn
        if before is None or before.is_over:
            raise ResetNeeded(
                f"env {ENV}: step() was called outside an episode. Call reset() to begin one."
            )
        turn, reward = self.advance(before, int(action))
        self._turn = turn
        is_illegal = turn.num_illegal > before.num_illegal
        why = f"action {action} was illegal" if is_illegal else ""
        info = self._tell(turn)
        info |= {"action": Act(ACT, str(turn.done[-1]), why), "illegal": is_illegal}
        shown = self.observe(turn.question, turn.path, len(turn.done))
        return shown, reward, turn.is_over, False, info

    def begin(self, split: str, index: int) -> Turn:
        """The episode of task `index` of a split before its first action."""
        order = self._order(ensure_split(ENV, split, self.splits))
        return Turn(order[ensure_index(ENV, split, index, len(order))])

    def advance(self, turn: Turn, action: int) -> tuple[Turn, float]:
        """An episode after one more action, and the reward of the action."""
        question, world = turn.question, self.world
        legal = world.at(question, turn.path).legal
        path, done, is_illegal = world.go_on(legal, turn.path, action)
        is_end = done is Action.TERMINATE
        is_over = is_end or len(turn.done) + 1 >= self.max_steps
        worth = ndcg(world.ids(world.at(question, path).top), question.qrels)
        earned = worth - turn.worth if self.settings.reward == "gain" else worth * is_over
        num_illegal = turn.num_illegal + is_illegal
        after = Turn(question, path, (*turn.done, done), num_illegal, worth, is_over)
        return after, earned - (0.0 if is_end else self.settings.step_cost)

    def observe(self, question: Judged, path: Moves | None, num_steps: int) -> dict[str, Any]:
        """The observation of a question after a path of actions; the same in every episode."""
        taken = np.zeros(len(self.actions), dtype=np.float32)
        for number in path or ():
            taken[number] += 1 / self.max_steps
        blocks = self.world.at(question, path).blocks
        # Copies: whoever gets an observation may change it.
        shown = {name: block.copy() for name, block in blocks.items()}
        return {**shown, "step": np.int64(num_steps), "taken": taken}

    def _row(
        self, question: Judged, path: Moves | None, num_steps: int
    ) -> tuple[Floats, NDArray[np.bool_]]:
        row = flatten(self.observation_space, self.observe(question, path, num_steps))
        return np.asarray(row, np.float32), np.array(self.world.at(question, path).legal)

    def render(self) -> str | None:
        """The question and the first passages in words, in mode `ansi`; nothing otherwise."""
        if self.render_mode != "ansi" or self._turn is None:
            return None
        turn = self._turn
        position = self.world.at(turn.question, turn.path)
        lines = [
            f"Question: {turn.question.text}",
            f"Actions left: {self.max_steps - len(turn.done)}.",
            f"Searched: {position.text[:_CHARACTERS] or 'nothing yet'}",
        ]
        for number, passage in enumerate(self._passages(position)[:_TITLES], 1):
            lines.append(f"{number}. {as_shown(passage)[:_CHARACTERS]}")
        return "\n".join(lines)

    def _make_order(self, split: str) -> Sequence[Judged]:
        """The questions of a split by task; held-out ones once each."""
        if split == TEST:
            return self.world.questions[TEST]
        questions = self.world.questions[TRAIN]
        count = len(questions) - min(len(questions) - 1, max(1, len(questions) // 10))
        if split == VALIDATION:
            return questions[count:]
        if (wanted := self.settings.difficulty) == ANY:
            return questions[:count]
        levels = [self.world.level(question) for question in questions[:count]]
        order = order_by(wanted, levels, f"{ENV}/{self.world.name}/{split}")
        return [questions[number] for number in order]

    def _passages(self, position: Position) -> tuple[Passage, ...]:
        passages = self.world.library.passages
        return tuple(replace(passages[place], score=score) for place, score in position.top)

    def _tell(self, turn: Turn) -> dict[str, Any]:
        position = self.world.at(turn.question, turn.path)
        ids = self.world.ids(position.top)
        return {
            "task": self._task,
            "action_mask": np.array(position.legal, dtype=np.int8),
            "passages": self._passages(position),
            "query": position.text,
            "signals": {
                "ndcg": turn.worth,
                "recall": recall(ids, turn.question.qrels),
                "illegal": float(turn.num_illegal),
            },
        }


def make_env(*, protocol: TagProtocol, retriever: RetrieverFactory, **settings: Any) -> TextAdapter:
    """The environment in words; a language model is shown titles and texts instead of numbers."""
    env = RetrievalControlEnv(render_mode="ansi", **settings)
    return TextAdapter(
        env,
        protocol=protocol,
        name=ENV,
        action_names=list(env.action_names),
        max_turns=env.max_steps,
    )


# A configuration is checked against the signature of the factory.
_settings = inspect.signature(EnvSettings).parameters.values()
make_env.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [*[*inspect.signature(make_env).parameters.values()][:2], *_settings]
)
