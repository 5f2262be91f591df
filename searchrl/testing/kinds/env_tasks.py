"""Criteria of environments, E1 to E10: what is made, what is asked, and that both can be repeated.

Owns what concerns an instance, its reset and its tasks; `env_episodes` has what comes after. Called
through `envs.ENV_CRITERIA`.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env

from searchrl.contracts import find_task_problem
from searchrl.core.episode import Task
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import NotApplicable, Problem, criterion, find_place
from searchrl.testing.kinds.env_subject import EnvSubject, Played, facts_of, find_own
from searchrl.testing.kit.fuzz import shorten

MAX_MAKE_S = 2.0
"""Seconds that making an instance may take, once everything is imported."""

MAX_LISTED = 48
"""Tasks of one split that are compared with those of the others."""

_CONTROL = re.compile(r"<\|[A-Za-z_]+\|>")
_TASK_METHODS = ("make_task", "make_prompt", "reset")


@criterion(
    "E1",
    "is made as a Gymnasium environment",
    "Nothing can be trained, evaluated or played otherwise.",
)
def is_made(subject: EnvSubject) -> Iterator[Problem]:
    """E1."""
    if subject.entry.name.endswith(":") and not subject.entry.argument:
        subject.fresh()
    factory = subject.entry.load()
    for number in ("first", "second"):
        try:
            env = subject.make()
        except (Exception, SystemExit) as error:
            yield Problem(
                f"making the {number} instance raised {describe_error(error)}",
                "the factory is called as factory(protocol=…, retriever=…, **settings); if it "
                "needs settings, pass them with --set NAME=VALUE",
                error,
            )
            return
        if not isinstance(env, gymnasium.Env):
            yield Problem(
                f"the factory returned {type(env).__name__}; expected a gymnasium.Env",
                "return an instance of a class that derives from gymnasium.Env, such as "
                "searchrl.envs.text.TextEnv",
                factory,
            )
            return
        env.close()


@criterion(
    "E2",
    f"is made within {MAX_MAKE_S:g} s",
    "A run makes one instance per rollout that is under way, dozens at the start.",
)
def is_made_quickly(subject: EnvSubject) -> Iterator[Problem]:
    """E2."""
    subject.fresh()  # what is loaded once, is loaded now
    times = []
    for _ in range(2):
        start = time.monotonic()
        env = subject.fresh()
        times.append(time.monotonic() - start)
        if times[-1] <= MAX_MAKE_S:
            return
    yield Problem(
        f"making another instance took {min(times):.1f} s each time",
        "keep what is loaded or computed in a cache of the module (functools.lru_cache), or do it "
        "when it is first needed",
        find_own(env, "__init__"),
    )


@criterion(
    "E3",
    "passes Gymnasium's own checker",
    "Wrappers, vector environments and gymnasium.make rely on what it checks.",
)
def satisfies_gymnasium(subject: EnvSubject) -> Iterator[Problem]:
    """E3."""
    env = subject.fresh()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True)
        except (Exception, SystemExit) as error:
            yield Problem(
                f"gymnasium.utils.env_checker.check_env raised {describe_error(error)}",
                "see https://gymnasium.farama.org/api/env; searchrl.envs.text.TextSpace is a space "
                "of any text",
                error
                if find_place(error, subject.entry.owner.file, 0)[1]
                else find_own(env, "__init__"),
            )
    for warning in caught:
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message)).removeprefix("WARN: ")
        if "unwrapped" not in text:  # that it is a wrapper is no fault
            yield Problem(
                f"gymnasium.utils.env_checker.check_env warns: {text}",
                "do as it says; searchrl.envs.text.TextSpace is a space of any text",
                find_own(env, "reset", "step", "__init__"),
            )


@criterion(
    "E4",
    "begins with a text prompt and an info",
    "The prompt is what the model reads; everything else comes from the info.",
)
def begins(subject: EnvSubject) -> Iterator[Problem]:
    """E4."""
    env = subject.fresh()
    at = find_own(env, "reset", "make_prompt", "make_task")
    for options in subject.probes(env):
        asked = f"reset(seed=0, options={options})"
        try:
            returned = env.reset(seed=0, options=dict(options))
        except (Exception, SystemExit) as error:
            yield Problem(
                f"{asked} raised {describe_error(error)}",
                "begin the task of this split and index; both are in the options of every reset",
                error,
            )
            continue
        if not isinstance(returned, tuple) or len(returned) != 2:
            yield Problem(
                f"{asked} returned {shorten(str(returned))}; expected a pair (prompt, info)",
                'end with `return prompt, {"task": task}`',
                at,
            )
            continue
        prompt, info = returned
        if not isinstance(prompt, str) or not prompt.strip():
            yield Problem(
                f"{asked} returned the prompt {shorten(str(prompt))} "
                f"({type(prompt).__name__}); expected a text that is not empty",
                "return what the model is to be asked as a str",
                at,
            )
        elif found := _CONTROL.search(prompt):
            yield Problem(
                f"the prompt holds {found.group()!r}, which means nothing there",
                "leave control tokens out: the model's chat template is applied to the prompt, and "
                "everything in it is ordinary text",
                at,
            )
        if not isinstance(info, dict):
            yield Problem(
                f"{asked} returned {type(info).__name__} as its info; expected a dict",
                'return a dict, such as {"task": task}',
                at,
            )


@criterion(
    "E5",
    "gives a task record that can be relied on",
    "Rewards read the gold answers in it, metrics its kind, records its id.",
)
def describes_tasks(subject: EnvSubject) -> Iterator[Problem]:
    """E5."""
    env = subject.fresh()
    at = find_own(env, *_TASK_METHODS)
    has_task = False
    for options in subject.probes(env):
        _, info = subject.begin(env, options)
        task = info.get("task")
        if task is None:
            continue
        has_task = True
        if problem := find_task_problem(task):
            yield Problem(
                f"for {options}, info['task'] is {problem}",
                "make it with searchrl.Task(id, split, index, question, answers=(gold, …))",
                at,
            )
        elif (task.split, task.index) != (options["split"], options["index"]):
            yield Problem(
                f"for {options}, info['task'] says split {task.split!r} and index {task.index}",
                "make the task of the split and index that were asked for, and write both down",
                at,
            )
        elif any(not answer.strip() for answer in task.answers):
            yield Problem(
                f"for {options}, the gold answers are {task.answers!r}: one is blank",
                "leave blank answers out; no answers at all say that none is known",
                at,
            )
    if not has_task:
        raise NotApplicable(
            "reset() puts no 'task' into its info: rewards that need gold answers cannot score it"
        )


@criterion(
    "E6",
    "asks the same for the same seed and options, in every instance",
    "The rollouts of a group are compared with each other: they must all play one task.",
)
def repeats_tasks(subject: EnvSubject) -> Iterator[Problem]:
    """E6."""
    first, second = subject.fresh(), subject.fresh()
    at = find_own(first, "reset", "make_prompt", "make_task")
    mend = (
        "draw everything random from random.Random(f'{split}/{index}') or, after "
        "super().reset(seed=seed), from self.np_random; never from the global random"
    )
    for options in subject.probes(first):
        begun = subject.begin(first, options)
        if _differ(begun, again := subject.begin(first, options)):
            yield Problem(f"{options} asks at first {_ask(begun)}, then {_ask(again)}", mend, at)
        elif _differ(begun, other := subject.begin(second, options)):
            yield Problem(
                f"{options} asks {_ask(begun)} in one instance, {_ask(other)} in another", mend, at
            )
    # Without an index the task is drawn from the seed.
    options = {"split": subject.splits(first)[0]}
    begun, other = subject.begin(first, options, seed=7), subject.begin(second, options, seed=7)
    if _differ(begun, other):
        yield Problem(
            f"{options} and seed 7 ask {_ask(begun)} in one instance, {_ask(other)} in another",
            mend,
            at,
        )


@criterion(
    "E7",
    "plays the same episode for the same turns",
    "What differs between the rollouts of a group must be the model's doing.",
)
def repeats_episodes(subject: EnvSubject) -> Iterator[Problem]:
    """E7."""
    env = subject.fresh()
    for options in subject.probes(env)[:3]:
        for turns in subject.turns(env, options):
            one = subject.play(subject.fresh(), options, turns)
            two = subject.play(subject.fresh(), options, turns)
            if _asks(one) != _asks(two):
                raise NotApplicable("what it asks does not repeat (E6)")
            yield from _compare(one, two, "in another instance", options, env)


@criterion(
    "E8",
    "forgets the episodes before",
    "Instances are used again; what one rollout leaves behind must not reach the next.",
)
def forgets(subject: EnvSubject) -> Iterator[Problem]:
    """E8."""
    env = subject.fresh()
    probes = subject.probes(env)
    dialogues = subject.turns(subject.fresh(), probes[0])
    firsts = [subject.play(subject.fresh(), probes[0], turns) for turns in dialogues]
    again = [subject.play(subject.fresh(), probes[0], turns) for turns in dialogues]
    if len({_asks(played) for played in (*firsts, *again)}) > 1:
        raise NotApplicable("what it asks does not repeat (E6)")
    if [played.traces for played in firsts] != [played.traces for played in again]:
        raise NotApplicable("its episodes do not repeat (E7)")
    for options in probes:
        for turns in dialogues:
            subject.play(env, options, turns)
    for first in firsts:
        later = subject.play(env, probes[0], first.turns)
        yield from _compare(first, later, "after other episodes", probes[0], env)


@criterion(
    "E9",
    "has different tasks in every split",
    "Held-out tasks that were trained on measure nothing; ids tell the tasks of a record apart.",
)
def has_tasks(subject: EnvSubject) -> Iterator[Problem]:
    """E9."""
    env = subject.fresh()
    if not env.has_wrapper_attr("num_tasks"):
        yield Problem(
            "it has no num_tasks(split)",
            "give it a method num_tasks(self, split) that returns how many tasks a split has",
            find_own(env),
        )
        return
    at = find_own(env, *_TASK_METHODS)
    seen: dict[object, tuple[str, int]] = {}
    ids: dict[str, tuple[str, int]] = {}
    for split in subject.splits(env):
        try:
            count = env.get_wrapper_attr("num_tasks")(split)
        except (Exception, SystemExit) as error:
            yield Problem(
                f"num_tasks({split!r}) raised {describe_error(error)}",
                "return how many tasks the split has; list the splits there are in `splits`",
                error,
            )
            continue
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            yield Problem(
                f"num_tasks({split!r}) returned {count!r}; expected a whole number above 0",
                "return how many tasks the split has; list the splits there are in `splits`",
                find_own(env, "num_tasks"),
            )
            continue
        own: set[object] = set()
        indices = _spread(count)
        for index in indices:
            prompt, info = subject.begin(env, {"split": split, "index": index})
            content = _content(prompt, info)
            if (other := seen.get(content)) and other[0] != split:
                yield Problem(
                    f"task {index} of '{split}' is task {other[1]} of '{other[0]}': {_ask(prompt)}",
                    "deal the tasks out to the splits, each to one",
                    at,
                )
                return
            own.add(content)
            seen.setdefault(content, (split, index))
            task = info.get("task")
            if isinstance(task, Task) and (twin := ids.setdefault(task.id, (split, index))) != (
                split,
                index,
            ):
                yield Problem(
                    f"task {index} of '{split}' and task {twin[1]} of '{twin[0]}' have one id, "
                    f"{task.id!r}",
                    "make the id of the split and the index, as in f'{split}-{index}'",
                    at,
                )
                return
        if len(own) < len(indices) / 2:
            yield Problem(
                f"{len(indices)} tasks of '{split}' are only {len(own)} different ones",
                "make the task depend on options['index'], or let num_tasks count the different "
                "ones only",
                at,
            )


@criterion(
    "E10",
    "refuses a split or an index that it has not, and says so",
    "A slip of the pen in a configuration would else train or measure something else.",
)
def refuses_unknown(subject: EnvSubject) -> Iterator[Problem]:
    """E10."""
    env = subject.fresh()
    split = subject.splits(env)[0]
    count = max(subject.count(env, split), 1)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"split": "no-such-split", "index": 0}, "no-such-split"),
        ({"split": split, "index": count}, str(count)),
        ({"split": split, "index": -1}, "-1"),
    ]
    for options, value in wrong:
        check = "ensure_index" if options["split"] == split else "ensure_split"
        at = find_own(env, check, "reset", "make_task", "num_tasks")
        mend = f"raise ValueError with a text that names {value} and what there is instead"
        try:
            prompt, _ = env.reset(seed=0, options=dict(options))
        except (Exception, SystemExit) as error:
            if value not in str(error):
                yield Problem(
                    f"reset(options={options}) raised {describe_error(error)}: it does not say "
                    f"what was wrong with {value}",
                    mend,
                    error,
                )
            continue
        yield Problem(
            f"there are {count} tasks in '{split}'; reset(options={options}) did not mind, and "
            f"asked {_ask(prompt)}",
            mend,
            at,
        )


def _differ(one: tuple[str, Mapping[str, Any]], two: tuple[str, Mapping[str, Any]]) -> bool:
    return one[0] != two[0] or facts_of(one[1]) != facts_of(two[1])


def _asks(played: Played) -> tuple[str, bytes]:
    return played.prompt, facts_of(played.info)


def _ask(begun: str | tuple[str, Mapping[str, Any]]) -> str:
    prompt, info = begun if isinstance(begun, tuple) else (begun, {})
    task = info.get("task")
    gold = f", gold {task.answers!r}" if isinstance(task, Task) and task.answers else ""
    return shorten(str(prompt)) + gold


def _content(prompt: str, info: Mapping[str, Any]) -> object:
    """What makes a task this one, apart from its number."""
    task = info.get("task")
    if not isinstance(task, Task):
        return prompt
    return prompt, facts_of({"task": replace(task, id="", split="", index=0)})


def _spread(count: int) -> Sequence[int]:
    """At most `MAX_LISTED` indices: all, or as many at even distances."""
    if count <= MAX_LISTED:
        return range(count)
    return [i * (count - 1) // (MAX_LISTED - 1) for i in range(MAX_LISTED)]


def _compare(
    one: Played, two: Played, when: str, options: Mapping[str, Any], env: object
) -> Iterator[Problem]:
    mend = "keep everything an episode changes in attributes that reset() sets anew"
    if _asks(one) != _asks(two):
        yield Problem(
            f"{options} asks {shorten(one.prompt)}, {when} {shorten(two.prompt)}",
            mend,
            find_own(env, "reset", "make_prompt", "make_task"),
        )
        return
    names = ("observation", "reward", "terminated", "truncated", "signals", "passages")
    for turn, left, right in zip(one.turns, one.traces, two.traces, strict=False):
        for name, before, after in zip(names, left, right, strict=True):
            if before != after:
                yield Problem(
                    f"{options}, turn {shorten(turn)}: {name} {shorten(str(before))}, {when} "
                    f"{shorten(str(after))}",
                    mend,
                    find_own(env, "step", "reset"),
                )
                return
