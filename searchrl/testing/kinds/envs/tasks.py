"""Criteria of environments, E1 to E10: what is made, what is asked, and that both can be repeated.

Owns what concerns an instance, its reset and its tasks; `episodes` has what comes after.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env

from searchrl.contracts import find_task_problem
from searchrl.core.episode import Task
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import MAX_PROBLEMS, NotApplicable, Problem, criterion, find_place
from searchrl.testing.kinds.envs import play as env_play
from searchrl.testing.kinds.trials import Way, judged, unchanged
from searchrl.testing.kit.fuzz import catch, shorten
from searchrl.testing.kit.subject import Subject

MAX_MAKE_S = 2.0
"""Seconds that making an instance may take, once everything is imported."""

MAX_PROMPT = 50_000
"""Characters of a prompt: some 12,000 tokens, several times what an episode may have by default."""

MAX_LISTED = 24
"""Tasks of one split that are compared with those of the others."""

_CONTROL = re.compile(r"<\|[A-Za-z_]+\|>")
_TASK_METHODS = ("make_task", "make_prompt", "reset")


@criterion("E1")
def _is_made(subject: Subject) -> Iterator[Problem]:
    for number in ("first", "second"):
        try:
            env = env_play.make_env(subject)
        except NotApplicable:
            raise
        except (Exception, SystemExit) as error:
            yield Problem(f"making the {number} instance raised {describe_error(error)}", error)
            return
        if not isinstance(env, gymnasium.Env):
            what = f"the factory returned {type(env).__name__}; expected a gymnasium.Env"
            fix = "derive from gymnasium.Env, or from searchrl.envs.text.TextEnv"
            yield Problem(what, subject.entry.load(), fix)
            return
        methods = [getattr(env.unwrapped, name) for name in ("reset", "step", "close")]
        if found := next(filter(inspect.iscoroutinefunction, methods), None):
            what = f"{found.__name__}() is an `async def`: calling it does nothing"
            fix = "write `def`: every instance has a thread of its own, where it may wait"
            yield Problem(what, found, f"{fix}; run what is async inside with asyncio.run(…)")
            return
        try:
            env.close()
        except (Exception, SystemExit) as error:
            yield Problem(
                f"close() raised {describe_error(error)}", error, "let it close what is there"
            )
            return


@criterion("E2")
def _is_made_quickly(subject: Subject) -> Iterator[Problem]:
    env_play.make_env(subject)  # what is loaded once, is loaded now
    times = []
    for _ in range(2):
        start = time.monotonic()
        env = env_play.make_env(subject)
        times.append(time.monotonic() - start)
    if min(times) > MAX_MAKE_S:
        what = f"making another instance took {min(times):.1f} s each time"
        yield Problem(what, env_play.find_own(env, "__init__"))


@criterion("E3")
def _satisfies_gymnasium(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    checker = "gymnasium.utils.env_checker.check_env"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(AttributeError):  # without a space it is told so below
            env.action_space.seed(0)  # turns are drawn from it, and a verdict is no matter of luck
        error = catch(check_env, env, None, True)
    if any("The reward is" in str(warning.message) for warning in caught):
        return  # no finite number, so none that could be compared: E12 says so
    if error is not None:
        is_located = find_place(error, subject.entry.owner.file, 0)[1]
        at = error if is_located else env_play.find_own(env, "__init__")
        yield Problem(f"{checker} raised {describe_error(error)}", at)
    for warning in caught:
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message)).removeprefix("WARN: ")
        if "unwrapped" not in text:  # that it is a wrapper is no fault
            at = env_play.find_own(env, "reset", "step", "__init__")
            yield Problem(f"{checker} warns: {text}", at)


@criterion("E4")
def _begins(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    for problem in _judge_beginnings(subject):
        if isinstance(problem.at, LookupError):  # most often there are fewer tasks than it says
            fix = "make_task() has none of this split and index: num_tasks() may promise too many"
            problem = replace(problem, fix=fix)
        yield problem
    for options in env_play.find_probes(env):
        with contextlib.suppress(Exception, SystemExit):  # told above
            prompt, _ = env.reset(seed=0, options=dict(options))
            if len(prompt) > MAX_PROMPT:
                what = f"for {options}, the prompt has {len(prompt):,} characters"
                fix = f"keep to {MAX_PROMPT:,}, which is much, and let it search for the rest"
                at = env_play.find_own(env, "make_prompt", "reset", "make_task")
                yield Problem(what, at, fix)
                return


@judged(env_play.BEGUN, raises=True, most=MAX_PROBLEMS)
def _judge_beginnings(options: env_play.Options, returned: Any) -> str:
    if not isinstance(returned, tuple) or len(returned) != 2:
        return f"reset() returned {shorten(str(returned))}; expected a pair (prompt, info)"
    prompt, info = returned
    if not isinstance(prompt, str) or not prompt.strip():
        said = f"{shorten(str(prompt))} ({type(prompt).__name__})"
        return f"reset() returned the prompt {said}; expected a text that is not empty"
    if found := _CONTROL.search(prompt):
        return (
            f"the prompt holds {found.group()!r}, which means nothing there: the model's chat "
            "template is applied to the prompt, and everything in it is ordinary text"
        )
    is_dict = isinstance(info, dict)
    return "" if is_dict else f"reset() returned {type(info).__name__} as its info; expected a dict"


@criterion("E5")
def _describes_tasks(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    at = env_play.find_own(env, *_TASK_METHODS)
    tasks: list[Task] = []
    has_task = False
    for options in env_play.find_probes(env):
        task = env_play.reset(env, options)[1].get("task")
        if task is None:
            continue
        has_task = True
        if problem := find_task_problem(task):
            yield Problem(f"for {options}, info['task'] is {problem}", at)
        elif (task.split, task.index) != (options["split"], options["index"]):
            said = f"split {task.split!r} and index {task.index}"
            yield Problem(f"for {options}, info['task'] says {said}", at)
        elif any(not answer.strip() for answer in task.answers):
            yield Problem(f"for {options}, the gold answers are {task.answers!r}: one is blank", at)
        else:
            tasks.append(task)
    slices = {name for task in tasks for name in task.slices}
    for name in sorted(slices & {task.kind for task in tasks}):
        what = f"'{name}' is a slice of one task and the kind of another: both are em/{name}"
        yield Problem(what, at, "give the slice another name")
    if not has_task:
        raise NotApplicable("no 'task' in its info: rewards that need gold answers cannot score it")


_repeats_tasks = criterion("E6")(unchanged(env_play.ASKED, Way.AGAIN, Way.ANEW))
_repeats_episodes = criterion("E7")(unchanged(env_play.PLAYED, Way.ANEW))
_forgets = criterion("E8")(unchanged(env_play.PLAYED, Way.LATER, Way.AGAIN))


@criterion("E9")
def _has_tasks(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    if not env.has_wrapper_attr("num_tasks"):
        yield Problem("it has no num_tasks(split)", env_play.find_own(env))
        return
    at = env_play.find_own(env, *_TASK_METHODS)
    listed: list[tuple[str, int, object, object]] = []
    for split in env_play.splits_of(env):
        try:
            count = env.get_wrapper_attr("num_tasks")(split)
        except (Exception, SystemExit) as error:
            yield Problem(f"num_tasks({split!r}) raised {describe_error(error)}", error)
            continue
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            what = f"num_tasks({split!r}) returned {count!r}; expected a whole number above 0"
            yield Problem(what, env_play.find_own(env, "num_tasks"))
            continue
        own = [
            (split, index, *_identify(env, split, index))
            for index in env_play.spread(count, MAX_LISTED)
        ]
        num_different = len({repr(content) for _, _, content, _ in own})
        if num_different < len(own) / 2:
            what = f"{len(own)} tasks of '{split}' are only {num_different} different ones"
            fix = "make the task depend on options['index'], or let num_tasks count different ones"
            yield Problem(what, at, fix)
        listed += own
    seen: dict[str, tuple[str, int]] = {}
    ids: dict[object, tuple[str, int]] = {}
    for split, index, content, task_id in listed:
        name, here = f"task {index} of '{split}'", (split, index)
        if (other := seen.setdefault(repr(content), here))[0] != split:
            what = f"{name} is task {other[1]} of '{other[0]}': {shorten(str(content))}"
            yield Problem(what, at, "deal the tasks out to the splits, each to one")
            return
        twin = ids.setdefault(task_id, here) if task_id is not None else here
        if twin != here:
            what = f"{name} and task {twin[1]} of '{twin[0]}' have one id, {task_id!r}"
            yield Problem(what, at, "make the id of split and index, as in f'{split}-{index}'")
            return


@criterion("E10")
def _refuses_unknown(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    split = env_play.splits_of(env)[0]
    count = max(env_play.count_tasks(env, split), 1)
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"split": "no-such-split", "index": 0}, "no-such-split", "ensure_split"),
        ({"split": split, "index": count}, str(count), "ensure_index"),
        ({"split": split, "index": -1}, "-1", "ensure_index"),
    ]
    for options, value, check in wrong:
        fix = f"raise ValueError with a text that names {value} and what there is instead"
        try:
            prompt, _ = env.reset(seed=0, options=dict(options))
        except (Exception, SystemExit) as error:
            if value not in str(error):
                what = f"reset(options={options}) raised {describe_error(error)}"
                yield Problem(f"{what}: it does not say what was wrong with {value}", error, fix)
            continue
        what = f"there are {count} tasks in '{split}'; reset(options={options}) accepted that"
        at = env_play.find_own(env, check, "reset", "make_task", "num_tasks")
        yield Problem(f"{what}, and asked {shorten(str(prompt))}", at, fix)


def _identify(env: env_play.Env, split: str, index: int) -> tuple[object, object]:
    """What makes a task this one, apart from its number; and its id, if it has a record."""
    prompt, info = env_play.reset(env, {"split": split, "index": index})
    task = info.get("task")
    if not isinstance(task, Task):
        return prompt, None
    return (prompt, env_play.facts_of({"task": replace(task, id="", split="", index=0)})), task.id
