"""Criteria of environments, E1 to E18: tasks, steps, and the end of episodes."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env

from searchrl.contracts import TokenBudget
from searchrl.contracts.problems import find_task_problem
from searchrl.core.episode import ANSWER, Action, Task
from searchrl.engine.rollout.boundary import step_env
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import MAX_PROBLEMS, NotApplicable, Problem, criterion
from searchrl.testing.kinds import playing as env_play
from searchrl.testing.kit.fuzz import catch, find_faulty, make_texts, shorten
from searchrl.testing.kit.policies import Step
from searchrl.testing.kit.subject import Subject
from searchrl.testing.kit.texts import HARD_TEXTS
from searchrl.testing.running import find_place
from searchrl.testing.trials import Way, judged, unchanged

MAX_LISTED = 24
"""Tasks of one split that are compared with those of the others."""
BUDGET = TokenBudget.words(64)
"""The budget of an observation when budgets are checked."""
_TASK_METHODS = ("make_task", "make_prompt", "reset")


@criterion("E1")
def _is_made(subject: Subject) -> Iterator[Problem]:
    for _ in range(2):
        env = env_play.make_env(subject)
        if not isinstance(env, gymnasium.Env):
            what = f"the factory returned {type(env).__name__}; expected a gymnasium.Env"
            fix = "derive from gymnasium.Env, or from searchrl.envs.TextEnv"
            yield Problem(what, subject.entry.load(), fix)
            return
        env.close()


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
    if error is not None and find_place(error, subject.entry.owner.file, 0)[1]:
        raise error  # of the plugin's own code
    if error is not None:
        at = env_play.find_own(env, "__init__")
        yield Problem(f"{checker} raised {describe_error(error)}", at)
    for warning in caught:
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message)).removeprefix("WARN: ")
        if "unwrapped" not in text:  # that it is a wrapper is no fault
            at = env_play.find_own(env, "reset", "step", "__init__")
            yield Problem(f"{checker} warns: {text}", at)


@criterion("E4")
@judged(env_play.BEGUN, raises=True, most=MAX_PROBLEMS)
def _begins(options: env_play.Options, returned: Any) -> str:
    if not isinstance(returned, tuple) or len(returned) != 2:
        return f"reset() returned {shorten(str(returned))}; expected a pair (prompt, info)"
    prompt, info = returned
    if not isinstance(prompt, str) or not prompt.strip():
        told = f"{shorten(str(prompt))} ({type(prompt).__name__})"
        return f"reset() returned the prompt {told}; expected a text that is not empty"
    is_dict = isinstance(info, dict)
    return "" if is_dict else f"reset() returned {type(info).__name__} as its info; expected a dict"


@criterion("E5")
def _describes_tasks(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    at = env_play.find_own(env, *_TASK_METHODS)
    has_task = False
    for options in env_play.find_probes(env):
        task = env_play.reset(env, options)[1].get("task")
        if task is None:
            continue
        has_task = True
        if problem := find_task_problem(task):
            yield Problem(f"for {options}, info['task'] is {problem}", at)
        elif (task.split, task.index) != (options["split"], options["index"]):
            told = f"split {task.split!r} and index {task.index}"
            yield Problem(f"for {options}, info['task'] says {told}", at)
        elif any(not answer.strip() for answer in task.answers):
            yield Problem(f"for {options}, the gold answers are {task.answers!r}: one is blank", at)
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
    seen: dict[object, tuple[str, int]] = {}
    for split in env_play.splits_of(env):
        count = env.get_wrapper_attr("num_tasks")(split)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            what = f"num_tasks({split!r}) returned {count!r}; expected a whole number above 0"
            yield Problem(what, env_play.find_own(env, "num_tasks"))
            continue
        contents = set()
        indices = env_play.spread(count, MAX_LISTED)
        for index in indices:
            content, task_id = env_play.identify(env, {"split": split, "index": index})
            contents.add(content)
            name, here = f"task {index} of '{split}'", (split, index)
            other_split, other = seen.setdefault(content, here)
            if other_split != split:
                what = f"{name} is task {other} of '{other_split}': {shorten(content)}"
                yield Problem(what, at, "deal the tasks out to the splits, each to one")
                return
            twin = seen.setdefault((task_id,), here) if task_id else here
            if twin != here:
                what = f"{name} and task {twin[1]} of '{twin[0]}' have one id, {task_id!r}"
                fix = "make the id of split and index, as in f'{split}-{index}'"
                yield Problem(what, at, fix)
                return
        if len(contents) < len(indices) / 2:
            what = f"{len(indices)} tasks of '{split}' are only {len(contents)} different ones"
            fix = "make the task depend on options['index'], or let num_tasks count different ones"
            yield Problem(what, at, fix)


@criterion("E10")
def _refuses_unknown(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    split = env_play.splits_of(env)[0]
    count = max(env_play.count_tasks(env, split), 1)
    for options, value, check in (
        ({"split": "no-such-split", "index": 0}, "no-such-split", "ensure_split"),
        ({"split": split, "index": count}, str(count), "reset"),
        ({"split": split, "index": -1}, "-1", "reset"),
    ):
        fix = f"raise ValueError with a text that names {value} and what there is instead"
        try:
            prompt, _ = env.reset(seed=0, options=dict(options))
        except (Exception, SystemExit) as error:
            if value not in str(error):
                what = f"reset(options={options}) raised {describe_error(error)}"
                yield Problem(f"{what}: it does not name {value}", error, fix)
            continue
        what = f"there are {count} tasks in '{split}'; reset(options={options}) accepted that"
        at = env_play.find_own(env, check, "reset", "make_task", "num_tasks")
        yield Problem(f"{what}, and asked {shorten(str(prompt))}", at, fix)


_TAKES_TURNS = judged(env_play.playing(env_play.step_unchecked, 6), raises=True)(lambda *_: "")


@criterion("E11")
def _takes_any_text(subject: Subject) -> Iterator[Problem]:
    yield from _TAKES_TURNS(subject)
    env = env_play.make_env(subject)
    first, *_ = env_play.find_probes(env)

    def find_error(text: str) -> BaseException | None:
        return catch(env_play.step_unchecked, env, (first, [text]))

    texts = make_texts([*subject.grammar.tags, *env_play.find_turns(subject, first)[0]])
    if faulty := find_faulty(HARD_TEXTS, texts, find_error):
        text, error = faulty
        yield Problem(f"step({shorten(text)}) raised {shorten(describe_error(error), 200)}", error)


@criterion("E12")
@judged(env_play.playing(env_play.step_unchecked, 6))
def _returns_five(episode: env_play.Episode, returned: Sequence[Any]) -> str:
    for turn, values in zip(episode[1], returned, strict=False):
        stub: Any = SimpleNamespace(step=lambda text, values=values: values)
        if not isinstance(values, tuple) or len(values) != 5:
            problem = f"step() returned {shorten(str(values))}; expected five values"
        else:
            problem = str(catch(step_env, stub, "") or "")  # what a run would say
        if problem:
            return f"turn {shorten(turn)}: {problem}"
    return ""


def _go_on(env: env_play.Env, episode: env_play.Episode) -> Step:
    options, turns = episode
    # Without the last turn, which may be an answer: going on is the point.
    turns = turns[:-1] or turns
    repeated = [turns[number % len(turns)] for number in range(env_play.MAX_TURNS)]
    return env_play.play(env, (options, repeated)).steps[-1]


@criterion("E13")
@judged(env_play.playing(_go_on, 1))
def _ends(episode: env_play.Episode, last: Step) -> str:
    what = f"after {env_play.MAX_TURNS} such turns neither terminated nor truncated was true"
    return "" if last.is_last else what


def _make_long(subject: Subject) -> env_play.Env:
    long = " ".join(f"word{i}" for i in range(10 * BUDGET.max_tokens))
    env = env_play.make_env(subject, env_play.Rewriting(subject.retriever, long))
    if not hasattr(env.unwrapped, "budget"):
        raise NotApplicable("it has no attribute `budget`: its observations are shown as they are")
    return env


def _play_within(env: env_play.Env, episode: env_play.Episode) -> env_play.Played:
    setattr(env.unwrapped, "budget", BUDGET)  # noqa: B010  # no attribute of gymnasium.Env
    return env_play.play(env, episode)


@criterion("E15")
@judged(env_play.playing(_play_within, 3, _make_long))
def _keeps_to_budget(episode: env_play.Episode, played: env_play.Played) -> str:
    for turn, step in zip(played.turns, played.steps, strict=True):
        if (length := BUDGET.count(str(step.observation))) > BUDGET.max_tokens:
            brought = f"the turn {shorten(turn)} brought an observation of {length}"
            return f"under a budget of {BUDGET.max_tokens} words {brought}"
    return ""


@criterion("E16")
def _is_not_fooled(subject: Subject) -> Iterator[Problem]:
    grammar = subject.grammar
    evil = env_play.Rewriting(subject.retriever, grammar.forged)
    env = env_play.make_env(subject, evil)
    clean = env_play.make_env(subject, env_play.Rewriting(subject.retriever, "harmless"))
    for episode in env_play.find_episodes(subject, 3).values():
        played, harmless = env_play.play(env, episode), env_play.play(clean, episode)
        for turn, step, other in zip(played.turns, played.steps, harmless.steps, strict=False):
            shown, usual = str(step.observation), str(other.observation)
            if more := [tag for tag in grammar.tags if shown.count(tag) > usual.count(tag)]:
                passage = f"a passage that holds {shorten(grammar.forged)} was shown to the model"
                what = f"{passage} as it is, with {' '.join(more)} (turn {shorten(turn)})"
                yield Problem(what, env_play.find_own(env, "step"))
                return
    if not evil.num_shown:
        raise NotApplicable("it showed no passage of the retriever in the episodes of this check")


@criterion("E17")
def _pays_right_answers(subject: Subject) -> Iterator[Problem]:
    env, grammar = env_play.make_env(subject), subject.grammar
    probes = env_play.find_probes(env)
    has_expert = "expert" in subject.entry.script_names  # others may be bad on purpose
    at = env_play.find_own(env, "step", "make_task", "reset")
    failures: list[Problem] = []
    num_played = 0
    for options in probes:
        task = env_play.reset(env, options)[1].get("task")
        accepted = task.answers if isinstance(task, Task) else ()
        ways = [grammar.render(Action(ANSWER, gold), "I know.") for gold in accepted]
        dialogues: list[tuple[str, ...]] = [(turn,) for turn in ways if turn is not None]
        for script in subject.entry.script_names:
            turns, raised = env_play.replay(subject, env, options, script)
            if raised is not None:
                what = f"{options}: the scripted policy '{script}' raised {describe_error(raised)}"
                yield Problem(what, raised)
                return
            dialogues = [turns] if script == "expert" else dialogues
        wrong = grammar.render(Action(ANSWER, env_play.WRONG_ANSWER), "a guess")
        dull = ["not a turn at all"] * env_play.MAX_TURNS if wrong is None else [wrong] * 50
        low = env_play.play(env, (options, dull)).env_return
        for turns in dialogues:
            num_played += 1
            best = env_play.play(env, (options, turns))
            who = "its scripted policy" if has_expert else f"the gold answer {shorten(turns[0])}"
            if not best.steps or not best.steps[-1].is_last:
                failures.append(Problem(f"{options}: {who} does not end the episode", at))
            elif best.env_return <= low:
                what = f"{options}: {who} earns {best.env_return:g}; wrong turns earn {low:g}"
                failures.append(Problem(what, at))
    if not num_played:
        raise NotApplicable("no scripted policy (expert=) and no gold answer says what is right")
    # A scripted policy may fail at times; an answer that is accepted is accepted.
    if failures and (not has_expert or len(failures) > num_played / 2):
        yield from failures


@criterion("E18")
def _has_its_gold(subject: Subject) -> Iterator[Problem]:
    env, has_gold = env_play.make_env(subject), False
    for options in env_play.find_probes(env):
        task = env_play.reset(env, options)[1].get("task")
        gold_ids = task.gold_ids if isinstance(task, Task) else ()
        if not gold_ids or not hasattr(env.unwrapped, "passages"):
            continue
        known = {passage.id for passage in env.unwrapped.passages(task)[1]}
        has_gold = has_gold or bool(known)
        lacking = [one for one in gold_ids if known and one not in known]
        if lacking:
            what = f"{options}: the gold passages {shorten(str(lacking))} are none of {len(known)}"
            yield Problem(what, env_play.find_own(env, *_TASK_METHODS))
            return
    if not has_gold:
        raise NotApplicable("no task names gold passages, or its passages are not at hand")
