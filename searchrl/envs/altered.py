"""The wrapper `altered`: it shows other passages than a search found.

Owns which value stands in place of the gold one. Who still answers the gold one did not read.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

import gymnasium

from searchrl.core.episode import Passage, Task
from searchrl.envs.text import TextEnv
from searchrl.errors import ConfigError

_TRIES = 100
"""Tasks that are looked at for another value."""
_VERDICTS = ("yes", "no", "noanswer", "no answer")
_WORDS = re.compile(r"[^\W\d_]+(?:\W+[^\W\d_]+)*")
_NUMBER = re.compile(r"\d[\d.,]*")


class Altered(gymnasium.Wrapper[str, str, str, str]):
    """Changes what the environment shows, the same way each time a task is played.

    Args:
        env: an environment of the kind of `regulations`, `corpus` or `multihop`.
        change: `value` puts an answer of another task, of the same kind, wherever a passage has the
            gold one; `other` shows passages of that task, without the gold answer; `none` shows
            none. `Task.changed_answers` are what the reader of a changed passage may answer.
    """

    def __init__(
        self,
        env: gymnasium.Env[str, str],
        *,
        change: Literal["value", "other", "none"] = "value",
    ) -> None:
        super().__init__(env)
        inner = env.unwrapped
        if not isinstance(inner, TextEnv):
            raise ConfigError(
                f"wrapper altered: {type(inner).__name__} shows no passages that can be changed; "
                "use it with a search environment, such as regulations or corpus"
            )
        self._inner, self._change = inner, change
        self._other: Task | None = None
        inner.alter = self._alter

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode whose task names its `changed_answers`, if it has any."""
        prompt, info = super().reset(seed=seed, options=options)
        task: Task = info["task"]
        self._other = other = find_other(self._inner, task)
        if other is not None:
            new, gold = other.answers[0], match_answers(task)
            changed = (new, *(gold.sub(new, one) for one in task.answers), *other.answers)
            kept = [one for one in dict.fromkeys(changed) if one not in task.answers]
            self._inner._task = task = replace(task, changed_answers=tuple(kept))
        return prompt, {**info, "task": task}

    def _alter(self, task: Task, passages: tuple[Passage, ...]) -> tuple[Passage, ...]:
        if self._change == "none":
            return ()
        if self._other is None:
            return passages
        gold, new = match_answers(task), self._other.answers[0]
        if self._change == "other":
            retriever = self._inner._indexes.get(*self._inner.passages(self._other))
            (found,) = retriever.search([self._other.question], len(passages))
            return tuple(one for one in found if not gold.search(f"{one.title}\n{one.text}"))
        shown = []
        for one in passages:
            text, title = gold.sub(new, one.text), gold.sub(new, one.title)
            is_changed = (text, title) != (one.text, one.title)
            original = one.text if is_changed else ""
            shown.append(replace(one, text=text, title=title, original=original))
        return tuple(shown)


def find_other(env: TextEnv, task: Task) -> Task | None:
    """The next task of the split whose answer is another one of the same kind; None: there is none.

    Of a task whose answer is no text of a passage (yes, no), or stands in the question, there is
    none.
    """
    if task.index < 0 or not task.answers or task.answers[0].casefold() in _VERDICTS:
        return None
    gold, total = match_answers(task), env.num_tasks(task.split)
    if gold.search(task.question):
        return None
    for step in range(1, min(total, _TRIES)):
        other = env.make_task(task.split, (task.index + step) % total)
        if other.answers and _kind(other) == _kind(task):
            if not any(map(gold.search, other.answers)):
                return other
    return None


def match_answers(task: Task) -> re.Pattern[str]:
    """A pattern of the accepted answers as whole words and numbers.

    Only that of four letters or more is found in any case. A longer form of the first answer
    (`12 days`) is found by it (`12`).
    """
    first, *others = filter(None, map(str.strip, task.answers))
    own = re.compile(_whole(first))
    rest = sorted((one for one in others if not own.search(one)), key=len, reverse=True)
    return re.compile("|".join(map(_whole, [first, *rest])))


def _whole(text: str) -> str:
    word = re.escape(text) if len(text) < 4 else f"(?i:{re.escape(text)})"
    return rf"(?<!\w)(?<!\d[.,:]){word}(?!\w|[.,:]\d)"


def _kind(task: Task) -> tuple[object, str]:
    """What an answer is: the kind that the environment names, and its shape (`0 A 0`: a date)."""
    text = _WORDS.sub(lambda run: "A" if run[0][0].isupper() else "a", task.answers[0])
    shape = _NUMBER.sub(lambda one: "0000" if re.fullmatch(r"[12]\d{3}", one[0]) else "0", text)
    return task.meta.get("value_kind"), shape
