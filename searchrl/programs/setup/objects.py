"""Objects in settings: classes, functions and rows in the place of names and files.

They are a plugin of their own: registered, checked and recorded as any other, by the hash of their
source.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import gymnasium

from searchrl.core.encoding import encode_text
from searchrl.data.arrow import to_rows
from searchrl.data.problems import BadRow, Problems, Row
from searchrl.data.questions import QUESTION_SHAPES, Question, parse_question
from searchrl.data.rows import parse_rows, read_rows
from searchrl.envs.foreign import GymAdapter, RandomActor
from searchrl.envs.gym_ids import PYTHON
from searchrl.errors import ConfigError, show_value
from searchrl.files import cache_path, replace_file
from searchrl.hookspecs import Register, hookimpl
from searchrl.plugins import load_plugins
from searchrl.plugins.provenance import Origin, Owner, hash_bytes
from searchrl.plugins.signatures import has_setting
from searchrl.rewards.components import FunctionReward

_ROWS = ("questions", "test_questions")


class Objects:
    """A plugin of the objects in the settings of a Python program."""

    def __init__(self) -> None:
        self.given: dict[str, dict[str, Callable[..., Any]]] = {"env": {}, "reward": {}}
        self.hashes: set[str] = set()
        """Hashes of their sources, and of rows."""

    @property
    def owner(self) -> Owner:
        """The owner of what they register."""
        return Owner(
            "python", Origin.PYTHON, sha256=hash_bytes("".join(sorted(self.hashes)).encode())
        )

    @hookimpl
    def register_envs(self, register: Register) -> None:
        """A class without a parameter `protocol` is one of Gymnasium, and gets its adapter."""
        for name, made in self.given["env"].items():
            if has_setting(made, "protocol"):
                register(name, made)
                continue
            gym_id = f"{PYTHON}{name}-v0"
            gymnasium.registry.pop(gym_id, None)  # of a cell that was run before
            gymnasium.register(gym_id, entry_point=partial(_make_inner, made))
            adapter = partial(GymAdapter, name=gym_id)
            register(name, adapter, protocol="act", reward="env", scripts={"random": RandomActor})

    @hookimpl
    def register_rewards(self, register: Register) -> None:
        """A function may say its `values`, with `is_range`, as a component does."""
        for name, score in self.given["reward"].items():
            values = getattr(score, "values", (-math.inf, math.inf))
            is_range = getattr(score, "is_range", not hasattr(score, "values"))
            register(name, partial(FunctionReward, name, score, values, is_range))

    def name_task(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a task, with names in the place of objects."""
        named, env = dict(task), task.get("env")
        settings: dict[str, Any] = dict(env) if isinstance(env, Mapping) else {"name": env}
        made = settings.get("name")
        if callable(made):
            settings["name"] = self._add("env", made)
            named["env"] = settings
        for key in _ROWS:
            if (rows := named.pop(key, None)) is not None:
                place = settings
                if callable(made) and not has_setting(made, "protocol"):
                    place = settings["make"] = dict(settings.get("make", {}))
                place[key] = str(rows) if isinstance(rows, str | Path) else self._keep(rows)
                named["env"] = {**settings, "name": settings.get("name") or "corpus"}
        if "reward" in task:
            named["reward"] = self._name_reward(task["reward"])
        return named

    def _name_reward(self, reward: Any) -> Any:
        if isinstance(reward, Mapping):
            return {step: self._name_reward(one) for step, one in reward.items()}
        if isinstance(reward, list | tuple):
            return "+".join(str(self._name_reward(one)) for one in reward).replace("+-", "-")
        return self._add("reward", reward) if callable(reward) else reward

    def _add(self, kind: str, made: Any) -> str:
        """Take in an object; returns its name, which no other one and no part of ours has."""
        known = self.given[kind]
        stem = getattr(made, "__name__", type(made).__name__)
        stem = stem if stem.isidentifier() else "unnamed"  # a lambda
        name, number, taken = stem, 2, load_plugins().names(kind)
        while name in taken or known.get(name, made) is not made:
            name, number = f"{stem}_{number}", number + 1
        self.take(kind, name, made)
        return name

    def take(self, kind: str, name: str, made: Any) -> None:
        """Take in an object by this name."""
        self.given[kind][name] = made
        self.hashes.add(hash_bytes(encode_text(f"{name}\0{_source(made)}")))

    def _keep(self, rows: Any) -> str:
        """Check rows as those of a file, and write them to one in the user's cache."""
        values = to_rows(rows) if hasattr(rows, "to_iterable_dataset") else rows
        if isinstance(values, Mapping) or not isinstance(values, Iterable):  # or a `DatasetDict`
            raise ConfigError(
                f"cannot use {show_value(rows)} as questions: expected a path, a list of rows or a "
                "`datasets.Dataset`"
            )
        problems, path, lines = Problems(), Path("questions"), list[str]()

        def parse(row: Row) -> Question:
            if not isinstance(row.value, Mapping):
                raise BadRow(f"expected a mapping, got {show_value(row.value)}")
            try:
                lines.append(json.dumps(row.value, ensure_ascii=False) + "\n")
            except (TypeError, ValueError) as error:
                raise BadRow(f"cannot be written as JSON: {error}") from None
            return parse_question(row, path, "questions")

        numbered = (Row(number, value) for number, value in enumerate(values, 1))
        expected = f"question; expected rows {QUESTION_SHAPES}"
        list(parse_rows(path, problems, parse, expected, places={}, rows=numbered))
        problems.ensure_none()
        data = encode_text("".join(lines))
        self.hashes.add(hash_bytes(data))
        file = cache_path("questions") / hash_bytes(data) / "questions.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, data)
        return str(file)


def take_objects(config: Any) -> tuple[Any, Objects | None]:
    """Settings with names in the place of objects, and the plugin that registers those, if any."""
    if not isinstance(config, Mapping):
        return config, None
    objects, settings = Objects(), dict(config)
    if not isinstance(functions := settings.pop("functions", {}), Mapping):
        raise ConfigError(f"functions = {show_value(functions)}: expected functions by name")
    for name, score in functions.items():
        objects.take("reward", name, score)
    settings = objects.name_task(settings)
    if isinstance(tasks := settings.get("tasks"), list | tuple):
        settings["tasks"] = [
            objects.name_task(one) if isinstance(one, Mapping) else one for one in tasks
        ]
    return settings, objects if objects.hashes else None


def _make_inner(made: Callable[..., Any], **arguments: Any) -> Any:
    """Make an environment of Gymnasium, with the rows of its files of questions."""
    for key in set(_ROWS) & set(arguments):
        arguments[key] = [one.value for one in read_rows(Path(arguments[key]), Problems())]
    return made(**arguments)


def _source(made: Any) -> str:
    """The source of a class or function; of a lambda, and where there is none, its code."""
    made = made.func if isinstance(made, partial) else made
    known = made if isinstance(made, type) or hasattr(made, "__code__") else type(made)
    if known.__name__ != "<lambda>":
        with suppress(OSError, TypeError):  # it was typed into a console
            return inspect.getsource(known)
    inner = vars(known).values() if isinstance(known, type) else [known]
    return "".join(_describe_code(one.__code__) for one in inner if hasattr(one, "__code__"))


def _describe_code(code: CodeType) -> str:
    """The content of code, without the place where it stands."""
    inner = [_describe_code(one) if isinstance(one, CodeType) else one for one in code.co_consts]
    # The order of a set differs from process to process.
    inner = [sorted(map(repr, one)) if isinstance(one, frozenset) else one for one in inner]
    return str((code.co_code, code.co_names, inner))
