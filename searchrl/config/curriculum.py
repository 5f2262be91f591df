"""Curricula as a configuration writes them: stages that begin at a step or once a condition holds.

Owns the text of a condition (`em>0.8`, `tasks.0.em>=0.5`) and what the stages of a task's weight,
difficulty and reward have in common. What a condition says of a run is found in
`engine.episodes.curriculum`. Pure functions; `sections.py` is the other caller.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from searchrl.errors import show_value

if TYPE_CHECKING:
    from searchrl.config.sections import CurriculumStage, TaskConfig

KEYS = ("weight", "difficulty", "reward")
"""What of a task can have stages."""

WINDOW = 5
"""Steps over which the mean of a condition is taken."""

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
)
_CONDITION = re.compile(
    r"\s*(?:tasks\.(?P<task>[0-9]{1,6})\.)?(?P<name>[A-Za-z_][\w:.\-]*?)\s*"
    r"(?P<operator>>=|<=|>|<)\s*(?P<bound>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*"
)
_EXPECTED = (
    "expected a metric, one of > >= < <= and a number, such as em>0.8, or tasks.0.em>0.8 for the "
    "metric of another task"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A bound on the training mean of a metric over the last `WINDOW` steps.

    `task` is the position of the task whose mean it is; None: the task that the condition is of.
    """

    name: str
    operator: str
    bound: float
    task: int | None = None

    def holds(self, mean: float) -> bool:
        """Whether a mean satisfies it."""
        return _OPERATORS[self.operator](mean, self.bound)

    def __str__(self) -> str:
        task = "" if self.task is None else f"tasks.{self.task}."
        return f"{task}{self.name}{self.operator}{self.bound:g}"


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises ValueError that says what is expected."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no condition; {_EXPECTED}")
    task = found["task"]
    number = None if task is None else int(task)
    return Condition(found["name"], found["operator"], float(found["bound"]), number)


def checked_condition(text: str) -> str:
    """The text, if it is a condition; else ValueError. For fields of a section."""
    parse_condition(text)
    return text


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its value, and when it begins. The first begins at step 0 and has neither."""

    value: Any
    from_step: int | None = None
    when: Condition | None = None


def list_stages(config: TaskConfig, key: str) -> tuple[Stage, ...]:
    """The stages of a task's `weight`, `difficulty` or `reward`; one if it never changes."""
    value: Any = getattr(config, key)
    if isinstance(value, Mapping):
        begun = sorted(value.items())
        return tuple(Stage(one, step or None) for step, one in begun)
    if not isinstance(value, list):
        return (Stage(value),)
    if key == "reward":
        ends = [None, *(stage.until_step for stage in value[:-1])]
        return tuple(
            Stage(stage.expr, end, _read(stage.when))
            for stage, end in zip(value, ends, strict=True)
        )
    return tuple(Stage(getattr(one, key), one.from_step, _read(one.when)) for one in value)


def alone(task: Mapping[str, Any]) -> dict[str, Any]:
    """A task as its keys, for a run in which others of its run are missing.

    It has no weight against them, the last of its difficulties and, if its reward waits for
    another task, the last of its rewards.
    """
    own = {key: value for key, value in task.items() if key not in ("weight", "difficulty")}
    levels = task.get("difficulty")
    if isinstance(levels, Mapping):
        own["env"] = {**own["env"], "difficulty": levels[max(levels, key=int)]}
    elif levels:
        own["env"] = {**own["env"], "difficulty": levels[-1]["difficulty"]}
    reward = task.get("reward")
    waits = [stage.get("when") or "" for stage in reward] if isinstance(reward, list) else []
    if any(parse_condition(when).task is not None for when in waits if when):
        own["reward"] = reward[-1]["expr"] if reward else reward
    return own


def describe_stages(
    tasks: Sequence[TaskConfig], begun: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> list[str]:
    """A sentence for everything that changes in training: `tasks.0.weight: 1, then 0.5 after …`.

    `begun`: by name, the steps after which the stages but the first began in a run.
    """
    told = []
    for place, task in enumerate(tasks):
        for key in KEYS:
            first, *others = list_stages(task, key)
            steps = begun.get(f"tasks.{place}.{key}", ())
            parts = [str(first.value)]
            for number, stage in enumerate(others):
                starts = [f"after step {stage.from_step}"] if stage.from_step is not None else []
                starts += [f"once {stage.when}"] if stage.when is not None else []
                is_known = stage.when is not None and number < len(steps)
                since = f" (after step {steps[number]})" if is_known else ""
                parts.append(f"{stage.value} {' or '.join(starts)}{since}")
            if others:
                told.append(f"tasks.{place}.{key}: {', then '.join(parts)}")
    return told


def _read(when: str | None) -> Condition | None:
    return None if when is None else parse_condition(when)


def checked_stages(value: Any, key: str) -> Any:
    """What somebody wrote as a weight or a difficulty, if its stages follow each other.

    Raises ValueError for what pydantic would not see or not say in words.
    """
    if isinstance(value, Mapping):
        _check_steps(value, key)
    elif isinstance(value, list):
        _check_list(value, key)
    elif key == "difficulty" and value is not None:
        raise ValueError(
            "expected {0: easy, 30: hard} or a list of stages; a difficulty that never changes is "
            f"env.difficulty: {value}"
        )
    return value


def _check_steps(value: Mapping[Any, Any], key: str) -> None:
    steps = [step for step in value if not _is_step(step)]
    for step in steps:
        if step == "when" or (isinstance(step, str) and _CONDITION.fullmatch(step)):
            raise ValueError(
                "a condition stands in a list of stages: "
                f"[{{{key}: …}}, {{when: em>0.8, {key}: …}}]"
            )
        raise ValueError(f"{show_value(step)} is no step; expected {{0: …, 30: …}}, from step 0 on")
    if 0 not in map(int, value):
        raise ValueError(f"there is no {key} for step 0; expected {{0: …, 30: …}}")


def _is_step(step: Any) -> bool:
    if isinstance(step, bool):
        return False
    is_text = isinstance(step, str) and step.isascii() and step.isdecimal() and len(step) < 10
    return is_text or (isinstance(step, int) and step >= 0)


def _check_list(value: list[Any], key: str) -> None:
    if not value:
        raise ValueError("the list of stages is empty; leave the key out, or write one stage")
    last = 0
    for number, item in enumerate(value):
        step, when = (_get(item, name) for name in ("from_step", "when"))
        where = f"stage {number + 1} of {len(value)}"
        if number == 0 and (step is not None or when is not None):
            raise ValueError(f"{where} begins at step 0; it takes no from_step and no when")
        if number and step is None and when is None:
            raise ValueError(f"{where} does not say when it begins: give it from_step or when")
        if isinstance(step, int) and step <= last:
            raise ValueError(f"{where}: from_step {step} does not come after {last}")
        last = step if isinstance(step, int) else last


def _get(item: CurriculumStage | Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def check_tasks(tasks: Sequence[TaskConfig]) -> None:
    """Check what the stages of several tasks say together.

    Raises ValueError if a condition is about a task that is not there, or if a step could come in
    which every weight is 0.
    """
    for place, task in enumerate(tasks):
        for key in KEYS:
            for stage in list_stages(task, key):
                if stage.when is not None and (stage.when.task or 0) >= len(tasks):
                    raise ValueError(
                        f"tasks.{place}.{key}: the condition {stage.when} is about task "
                        f"{stage.when.task}, and there are {len(tasks)}, counted from 0"
                    )
    weights = [list_stages(task, "weight") for task in tasks]
    # Tasks whose stages begin alike change together; all others may stand anywhere.
    together: dict[Any, list[tuple[Stage, ...]]] = {}
    for place, stages in enumerate(weights):
        starts = tuple((stage.from_step, _of(stage.when, place)) for stage in stages)
        together.setdefault(starts, []).append(stages)
    for step in sorted({stage.from_step or 0 for stages in weights for stage in stages}):
        if all(_can_be_zero(group, step) for group in together.values()):
            raise ValueError(
                f"every weight can be 0 after step {step}, and then nothing is left to draw; "
                "give a task that waits, or the one it waits for, a weight above 0 (0.01, say)"
            )


def _can_be_zero(group: Sequence[tuple[Stage, ...]], step: int) -> bool:
    """Whether tasks that change together can all have the weight 0 at a step."""
    first = due_stage(group[0], step)
    last = first
    while last + 1 < len(group[0]) and group[0][last + 1].when is not None:
        last += 1
    return any(all(not one[at].value for one in group) for at in range(first, last + 1))


def due_stage(stages: Sequence[Stage], step: int) -> int:
    """The number of the last stage, from 0, that has begun at a step whatever the means are."""
    return max(n for n, one in enumerate(stages) if n == 0 or (one.from_step or math.inf) <= step)


def _of(when: Condition | None, place: int) -> Condition | None:
    """A condition with the task that it is about."""
    return when if when is None or when.task is not None else replace(when, task=place)
