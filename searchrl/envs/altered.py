"""The wrapper `altered`: it shows other passages than a search found.

Whoever reads them answers something else than who knows the answer by heart.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

import gymnasium

from searchrl.core.episode import Passage, Task
from searchrl.data.questions import VERDICTS
from searchrl.envs.text import TextEnv
from searchrl.errors import ConfigError

_TRIES = 100
"""Tasks that are looked at for another value."""
_LARGE = 1000
_WORDS = re.compile(r"[^\W\d_]+(?:\W+[^\W\d_]+)*")
_NUMBER = re.compile(r"\d[\d.,]*")


class Altered(gymnasium.Wrapper[str, str, str, str]):
    """Changes what is shown, the same way each time; the task has its `changed_answers`.

    Args:
        env: a search environment, such as `regulations` or `corpus`.
        change: `value` puts another task's answer of the same kind in place of the gold one, in
            every passage; `other` shows passages of that task, without the gold answer; `none`
            shows none.
    """

    def __init__(
        self, env: gymnasium.Env[str, str], *, change: Literal["value", "other", "none"] = "value"
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
        """Begin an episode; a task without another value of its kind has no `changed_answers`."""
        prompt, info = super().reset(seed=seed, options=options)
        task: Task = info["task"]
        self._other = other = find_other(self._inner, task)
        if other is not None:
            swapped = (_swap(task, other, one) for one in task.answers)
            changed = dict.fromkeys((other.answers[0], *swapped, *other.answers))
            kept = tuple(one for one in changed if one not in task.answers)
            self._inner._task = task = replace(task, changed_answers=kept)
        return prompt, {**info, "task": task}

    def _alter(self, task: Task, passages: tuple[Passage, ...]) -> tuple[Passage, ...]:
        other = self._other
        if self._change == "none" or not passages:
            return ()
        if other is None:
            return passages
        if self._change == "other":
            retriever = self._inner._indexes.get(*self._inner.passages(other))
            (found,) = retriever.search([other.question], len(passages))
            gold = match_answers(task)
            return tuple(one for one in found if not gold.search(f"{one.title}\n{one.text}"))
        shown = []
        for one in passages:
            title, text = _swap(task, other, one.title), _swap(task, other, one.text)
            original = "" if (title, text) == (one.title, one.text) else one.text
            shown.append(replace(one, title=title, text=text, original=original))
        return tuple(shown)


def find_other(env: TextEnv, task: Task) -> Task | None:
    """The next task of the split whose answer is another one of the same kind.

    None if there is none, if the answer is no text of a passage (yes, no), or if it stands in the
    question. A large corpus is not looked through, because that would take too long.
    """
    if task.index < 0 or not task.answers or task.answers[0].casefold() in VERDICTS:
        return None
    gold, (_, corpus) = match_answers(task), env.passages(task)
    is_there = len(corpus) > _LARGE or any(gold.search(f"{p.title}\n{p.text}") for p in corpus)
    if gold.search(task.question) or not is_there:
        return None
    total = env.num_tasks(task.split)
    for step in range(1, min(total, _TRIES)):
        other = env.make_task(task.split, (task.index + step) % total)
        is_alike = bool(other.answers) and _kind(other) == _kind(task)
        if is_alike and not any(map(gold.search, other.answers)):
            return other
    return None


def match_answers(task: Task) -> re.Pattern[str]:
    """A pattern of the accepted answers as whole words; short ones (`US`) in their own case.

    Of `12` and `12 days` only the first is replaced, so that the unit stays.
    """

    def whole(text: str) -> str:
        word = re.escape(text) if len(text) < 4 else f"(?i:{re.escape(text)})"
        return rf"(?<!\w)(?<!\d[.,:]){word}(?!\w|[.,:]\d)"

    first = task.answers[0]
    rest = [one for one in task.answers if one.strip() and not re.search(whole(first), one)]
    return re.compile("|".join(map(whole, [first, *sorted(rest, key=len, reverse=True)])))


def _swap(task: Task, other: Task, text: str) -> str:
    return match_answers(task).sub(lambda _: other.answers[0], text)


def _kind(task: Task) -> tuple[object, str]:
    """The kind of an answer that the environment names, and its shape (`0 A 0`: a date)."""
    text = _WORDS.sub(lambda run: "A" if run[0][0].isupper() else "a", task.answers[0])
    shape = _NUMBER.sub(lambda one: "0000" if re.fullmatch(r"[12]\d{3}", one[0]) else "0", text)
    return task.meta.get("value_kind"), shape
