"""`reasoning-gym:NAME`: tasks of one answer each, which the library makes and scores."""

import inspect
import json
import re
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from searchrl import ConfigError, suggest
from searchrl.contracts import ANSWER, Action, TagProtocol, Task
from searchrl_envs.base import ForeignEnv, Reply, need

# Code, or a power without end, in an answer that a scorer hands to `eval` or to sympy.
_CODE = re.compile(
    r"__|[#\\!]|<<|\.\s*[^\W\d]|[\])]\s*\(|\([^)]*['\"]|['\"].*\("
    r"|\*\*\W*(\d[\d_]{2}|\w+\W*\*\*|\([^)]*\*)"
    r"|\b(?!(a?(sin|cos|tan)h?|exp|log|sqrt|Abs|Integral)\b)[^\W\d]\w*\s*\(",
    re.DOTALL,
)


class ReasoningGym(ForeignEnv):
    """Tasks of the set `name`, with the score of the set as reward.

    `config` holds settings of the set's own config class. They precede those of `level`, a level
    of its curriculum. The signal `unscored` is 1 for an answer that the scorer could not take.
    """

    sample = Action(ANSWER, "4")

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        name: str,
        retriever: Any = None,
        config: dict[str, Any] | None = None,
        level: NonNegativeInt | None = None,
        num_tasks: PositiveInt = 2_000,
    ) -> None:
        super().__init__(protocol, f"reasoning-gym:{name}", 1, num_tasks)
        need(self.name, "reasoning-gym")
        size = len(self.splits) * num_tasks
        self._set, self._get = _load(name, json.dumps(config or {}), level, size)
        source = inspect.getsource(self._set.score_answer)
        self._evaluates = "eval(" in source or "parse_expr(" in source

    def _begin(self, split: str, index: int) -> tuple[Task, str]:
        self._item = self._get(self.seed_of(split, index))
        answers = () if self._item["answer"] is None else (str(self._item["answer"]),)
        question, name = self._item["question"], f"{self.name}/{split}/{index}"
        return Task(name, split, index, question, answers, env=self.name), question

    def _play(self, action: Action) -> Reply:
        text, score = str(action.payload), None
        try:
            if action.kind == ANSWER and not (self._evaluates and _CODE.search(text)):
                score = float(self._set.score_answer(text, self._item))
        except Exception:  # scorers of the library raise anything on a text of a model
            score = None
        return Reply("", score or 0.0, True, {"unscored": float(score is None)})


@lru_cache(maxsize=8)  # each rollout of a group makes its own environment, and asks the same
def _load(name: str, config: str, level: int | None, size: int) -> tuple[Any, Any]:
    """The data set, and a function that gives an item of it."""
    from reasoning_gym.factory import CURRICULA, DATASETS

    env, given = f"env reasoning-gym:{name}", {"seed": 0, **json.loads(config)}
    sets = [one for one in DATASETS if one != "composite"]  # its parts are sets, not settings
    if name not in sets:
        raise ConfigError(f"{env}: there is no such set.{suggest(name, sets)}")
    if level is not None and name not in CURRICULA:
        raise ConfigError(f"{env} has no levels; leave out level, or set config")
    make, start = DATASETS[name]
    try:
        if level is not None:
            curriculum = CURRICULA[name]()
            curriculum.set_global_level(level)
            start = curriculum.generate_configuration
        made = make(replace(start(), size=size, **given))
    except Exception as error:  # the library checks values by assertions
        known = ", ".join(field.name for field in fields(DATASETS[name][1]))
        raise ConfigError(f"{env}, {given}: {error}. Settings of config: {known}") from error
    return made, lru_cache(maxsize=4096)(made.__getitem__)
