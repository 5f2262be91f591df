"""Criteria of environments, E11 to E19: what a step does, how episodes end, what crosses outside.

Owns what concerns the playing of a task; `env_tasks` has what comes before. Called through
`envs.ENV_CRITERIA`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded

from searchrl.contracts import (
    Retriever,
    TokenBudget,
    find_action_problem,
    find_passages_problem,
    is_finite_number,
)
from searchrl.core.episode import ANSWER, Action, Passage, Task
from searchrl.plugins.registry import Registry, describe_error
from searchrl.rewards.answers import em
from searchrl.testing.criteria import NotApplicable, Problem, criterion
from searchrl.testing.kinds.env_subject import WRONG_ANSWER, EnvSubject, Played, find_own
from searchrl.testing.kit.fuzz import HARD_TEXTS, catch, find_example, make_texts, shorten
from searchrl.testing.kit.tags import find_tags, forge, render
from searchrl.testing.probes.elsewhere import call_elsewhere

MAX_TURNS = 2000
"""Turns after which an episode should long be over."""

BUDGET_WORDS = 64
"""Words that an observation may have when budgets are checked."""


@criterion(
    "E11",
    "takes any text as a turn and never raises",
    "A model writes anything. What raises is a failed rollout, and too many of them end the run.",
)
def takes_any_text(subject: EnvSubject) -> Iterator[Problem]:
    """E11."""
    env = subject.fresh()
    probes = subject.probes(env)
    mend = "answer with a notice (protocol.render_notice) or end the episode; never raise on text"

    def play(turns: Sequence[str], options: Mapping[str, Any] = probes[0]) -> BaseException | None:
        """What the turns raise, in an episode of their own."""
        subject.begin(env, options)
        for turn in turns:
            try:
                returned = env.step(turn)
            except (Exception, SystemExit) as error:
                return error
            if not isinstance(returned, tuple) or any(map(bool, returned[2:4])):
                break
        return None

    for options in probes:
        for turns in subject.turns(subject.fresh(), options):
            if error := play(turns, options):
                yield Problem(
                    f"{options}, turns {shorten(str(list(turns)), 160)}: step() raised "
                    f"{describe_error(error)}",
                    mend,
                    error,
                )
                return
    for text in HARD_TEXTS:
        if error := play([text]):
            yield Problem(
                f"step({shorten(text)}) raised {shorten(describe_error(error))}", mend, error
            )
            return
    pieces = [*find_tags(subject.protocol), *subject.turns(env, probes[0])[0]]
    found = find_example(make_texts(pieces), lambda text: play([text]) is not None)
    if found is not None and (error := play([found])):
        yield Problem(f"step({shorten(found)}) raised {describe_error(error)}", mend, error)


@criterion(
    "E12",
    "returns five values from step() that can be relied on",
    "A reward that is no finite number spoils the weights; a value of another type ends a rollout.",
)
def returns_five(subject: EnvSubject) -> Iterator[Problem]:
    """E12."""
    env = subject.fresh()
    at = find_own(env, "step")
    for options in subject.probes(env):
        for turns in subject.turns(subject.fresh(), options):
            subject.begin(env, options)
            for turn in turns:
                try:
                    returned = env.step(turn)
                except (Exception, SystemExit):  # E11 tells
                    break
                if problem := _find_step_problem(returned):
                    yield Problem(
                        f"{options}, turn {shorten(turn)}: step() returned {problem}",
                        "return (observation, reward, terminated, truncated, info), as "
                        "gymnasium.Env.step describes them",
                        at,
                    )
                    return
                if returned[2] or returned[3]:
                    break


@criterion(
    "E13",
    "ends every episode, however long one goes on",
    "A rollout without an end holds up its whole step.",
)
def ends(subject: EnvSubject) -> Iterator[Problem]:
    """E13."""
    env = subject.fresh()
    options = subject.probes(env)[0]
    for turns in subject.turns(subject.fresh(), options):
        # Without the last turn, which may be an answer: going on is the point.
        going_on = turns[:-1] or turns
        subject.begin(env, options)
        for number in range(MAX_TURNS):
            if subject.step(env, going_on[number % len(going_on)]).is_last:
                break
        else:
            yield Problem(
                f"after {MAX_TURNS} turns like {shorten(going_on[0])} neither terminated nor "
                "truncated was true",
                "count the turns in step() and return truncated=True at a limit",
                find_own(env, "step"),
            )
            return


@criterion(
    "E14",
    "raises gymnasium.error.ResetNeeded after the end",
    "A loop that forgets to reset would else learn from turns that belong to no task.",
)
def stays_over(subject: EnvSubject) -> Iterator[Problem]:
    """E14."""
    env = subject.fresh()
    options = subject.probes(env)[0]
    turns = subject.turns(subject.fresh(), options)[0]
    for _ in range(20):
        played = subject.play(env, options, turns)
        if played.steps and played.steps[-1].is_last:
            break
        turns = (*turns, *turns)
        if len(turns) > MAX_TURNS:
            raise NotApplicable("no episode ended (E13)")
    mend = (
        "keep whether the episode is over; when step() is called all the same, raise "
        "gymnasium.error.ResetNeeded with a text"
    )
    error = catch(env.step, turns[0])
    if error is None:
        yield Problem("step() went on after the episode had ended", mend, find_own(env, "step"))
    elif not isinstance(error, ResetNeeded):
        yield Problem(
            f"after the end of the episode, step() raised {describe_error(error)}", mend, error
        )


@criterion(
    "E15",
    "keeps observations within the budget",
    "An observation that is too long is cut by force, its closing tag with it.",
)
def keeps_to_budget(subject: EnvSubject) -> Iterator[Problem]:
    """E15."""
    long = " ".join(f"word{i}" for i in range(10 * BUDGET_WORDS))
    env = subject.fresh(_Rewriting(subject.retriever, long).make)
    if not hasattr(env.unwrapped, "budget"):
        raise NotApplicable("it has no attribute `budget`: its observations are shown as they are")
    budget = TokenBudget.words(BUDGET_WORDS)
    for options in subject.probes(env)[:3]:
        for turns in subject.turns(subject.fresh(), options):
            setattr(env.unwrapped, "budget", budget)  # noqa: B010  # no attribute of gymnasium.Env
            played = subject.play(env, options, turns)
            for turn, step in zip(played.turns, played.steps, strict=True):
                length = budget.count(str(step.observation))
                if length > budget.max_tokens:
                    yield Problem(
                        f"under a budget of {budget.max_tokens} words the turn {shorten(turn)} "
                        f"brought an observation of {length}",
                        "pass self.budget to protocol.render_observation and render_notice",
                        find_own(env, "step"),
                    )
                    return


@criterion(
    "E16",
    "is not fooled by a retrieved text",
    "Whoever writes into the corpus could else answer, or end an observation, in the model's name.",
)
def is_not_fooled(subject: EnvSubject) -> Iterator[Problem]:
    """E16."""
    forged, tags = forge(subject.protocol), find_tags(subject.protocol)
    evil, plain = _Rewriting(subject.retriever, forged), _Rewriting(subject.retriever, "harmless")
    env, clean = subject.fresh(evil.make), subject.fresh(plain.make)
    for options in subject.probes(env)[:3]:
        for turns in subject.turns(subject.fresh(), options):
            played, harmless = (
                subject.play(env, options, turns),
                subject.play(clean, options, turns),
            )
            for turn, step, other in zip(played.turns, played.steps, harmless.steps, strict=False):
                shown, usual = str(step.observation), str(other.observation)
                if more := [tag for tag in tags if shown.count(tag) > usual.count(tag)]:
                    yield Problem(
                        f"a passage that holds {shorten(forged)} was shown to the model as it is, "
                        f"{' '.join(more)} included (turn {shorten(turn)})",
                        "show passages through protocol.render_observation, or neutralise them "
                        "with protocol.neutralise",
                        find_own(env, "step"),
                    )
                    return
    if not evil.num_shown:
        raise NotApplicable("it showed no passage of the retriever in the episodes of this check")


@criterion(
    "E17",
    "pays the right answer best",
    "A policy learns what is paid: where the right answer is not, it learns something else.",
)
def pays_right_answers(subject: EnvSubject) -> Iterator[Problem]:
    """E17."""
    env = subject.fresh()
    wrong = render(subject.protocol, Action(ANSWER, WRONG_ANSWER), "a guess")
    dull = [wrong] * 50 if wrong is not None else ["not a turn at all"] * MAX_TURNS
    probes = subject.probes(env)
    has_expert = "expert" in subject.entry.script_names  # others may be bad on purpose
    failures: list[Problem] = []
    num_played = 0
    for options in probes:
        low = subject.play(env, options, dull)
        if has_expert:
            ways = [("its scripted policy", subject.replay_expert(env, options))]
        else:
            ways = _gold_turns(subject, low.task)
        for who, turns in ways:
            num_played += 1
            best = subject.play(env, options, turns)
            at = find_own(env, "step", "make_task", "reset")
            if problem := _find_pay_problem(subject, who, best, low, bool(wrong)):
                failures.append(Problem(f"{options}: {problem[0]}", problem[1], at))
    if not num_played:
        raise NotApplicable(
            "neither a scripted policy (expert=) nor gold answers say what is right"
        )
    # A scripted policy may fail at times; an answer that is accepted is accepted.
    if failures and (not has_expert or len(failures) > num_played / 2):
        yield from failures


@criterion(
    "E18",
    "says of an episode only what pickle can carry",
    "Workers and processes send tasks, actions and signals to each other by pickle.",
)
def can_travel(subject: EnvSubject) -> Iterator[Problem]:
    """E18."""
    env = subject.fresh()
    for options in subject.probes(env):
        for turns in subject.turns(subject.fresh(), options)[:2]:
            played = subject.play(env, options, turns)
            infos = [("reset", played.info), *(("step", step.info) for step in played.steps)]
            for method, info in infos:
                for name in ("task", "action", "passages", "signals"):
                    if error := catch(_send, info.get(name)):
                        yield Problem(
                            f"info['{name}'] of {method}() does not survive pickle: "
                            f"{describe_error(error)}",
                            "put plain values into it: texts, numbers, tuples, dicts; no functions "
                            "and no open things",
                            find_own(env, *(("make_task",) if name == "task" else ()), method),
                        )
                        return


@criterion(
    "E19",
    "asks the same in another process",
    "Workers make their own instances from names and settings; all must play the same world.",
)
def is_the_same_elsewhere(subject: EnvSubject) -> Iterator[Problem]:
    """E19."""
    env = subject.fresh()
    probes = subject.probes(env)
    name = subject.entry.qualified + subject.entry.argument
    here = [_opening(subject, env, options) for options in probes]
    if here != [_opening(subject, subject.fresh(), options) for options in probes]:
        raise NotApplicable("what it asks does not repeat (E6)")
    try:
        there = call_elsewhere(
            subject.registry, begin_there, name, dict(subject.settings), list(probes)
        )
    except Exception as error:
        yield Problem(
            f"{describe_error(error)}",
            "make everything from the settings and from what the plugin's file defines; nothing "
            "that only this process knows",
            find_own(env, "__init__", "reset"),
        )
        return
    for options, one, two in zip(probes, here, there, strict=True):
        for mine, other in zip(one, two, strict=True):
            if mine == other:
                continue
            yield Problem(
                f"{options} asks {shorten(mine)} in this process, {shorten(other)} in another",
                "hash() of a text and the order of a set differ between processes, and so do ids, "
                "times and global counters; seed with random.Random(text) instead",
                find_own(env, "make_task", "make_prompt", "reset"),
            )
            break


def begin_there(
    registry: Registry, name: str, settings: dict[str, Any], probes: list[dict[str, Any]]
) -> list[tuple[str, str]]:
    """What `E19` asks of another process: prompt and task of every probe."""
    subject = EnvSubject.of(registry, registry.get("env", name), settings)
    env = subject.make()
    return [_opening(subject, env, options) for options in probes]


def _send(value: object) -> None:
    pickle.loads(pickle.dumps(value))


def _opening(
    subject: EnvSubject, env: gymnasium.Env[Any, Any], options: Mapping[str, Any]
) -> tuple[str, str]:
    prompt, info = subject.begin(env, options)
    task = info.get("task")
    facts = (task.id, task.question, task.answers) if isinstance(task, Task) else None
    return prompt, repr(facts)


def _find_step_problem(returned: object) -> str:
    """Say what is wrong with what `step` returned, or ""."""
    if not isinstance(returned, tuple) or len(returned) != 5:
        return f"{shorten(str(returned))}; expected five values"
    observation, reward, terminated, truncated, info = returned
    if not isinstance(observation, str):
        return f"the observation {shorten(str(observation))}; expected text, empty at the end"
    if not is_finite_number(reward):
        return f"the reward {reward!r}; expected a finite number"
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if type(flag).__name__ not in ("bool", "bool_"):
            return f"{name} = {flag!r}; expected True or False"
    if not isinstance(info, dict):
        return f"an info of type {type(info).__name__}; expected a dict"
    if "action" in info and (problem := find_action_problem(info["action"])):
        return f"info['action'] = {problem}"
    if problem := find_passages_problem(info.get("passages", ())):
        return f"info['passages'] = {problem}"
    signals = info.get("signals", {})
    if not isinstance(signals, Mapping):
        return f"info['signals'] = {signals!r}; expected a dict of numbers"
    for name, value in signals.items():
        if not isinstance(name, str) or not is_finite_number(value):
            return f"info['signals'][{name!r}] = {value!r}; expected a text and a finite number"
    return ""


def _gold_turns(subject: EnvSubject, task: Task | None) -> list[tuple[str, tuple[str, ...]]]:
    """One dialogue per gold answer, if the protocol writes answers."""
    if task is None or not isinstance(task.answers, tuple | list):
        return []
    golds = [(gold, render(subject.protocol, Action(ANSWER, gold), "I know.")) for gold in
             task.answers if isinstance(gold, str)]  # fmt: skip
    return [(f"the gold answer {shorten(gold)}", (turn,)) for gold, turn in golds if turn]


def _find_pay_problem(
    subject: EnvSubject, who: str, best: Played, low: Played, has_answers: bool
) -> tuple[str, str] | None:
    """What is wrong with the pay, and how to mend it."""
    if not best.steps or not best.steps[-1].is_last:
        return f"{who} does not end the episode", "terminate when an answer is given"
    answers = best.task.answers if best.task is not None else ()
    if has_answers and answers:
        said = subject.protocol.final_answer(best.turns)
        if em(said, answers) < 1:
            return (
                f"{who} answers {said!r}, which is none of the gold answers {answers!r}",
                "put every accepted answer into Task.answers, as the model would write it",
            )
    if best.env_return <= low.env_return:
        return (
            f"{who} earns {best.env_return:g}; wrong turns earn {low.env_return:g}",
            "return a higher reward from step() for what is right",
        )
    return None


class _Rewriting:
    """A retriever factory whose passages say something else; counts those it gave."""

    def __init__(self, factory: Any, text: str) -> None:
        self._factory = factory
        self.text = text
        self.num_shown = 0

    def make(self, passages: Sequence[Passage], **settings: Any) -> Retriever:
        """A retriever over the passages, whose results are rewritten."""
        return _Rewritten(self, self._factory(passages))


class _Rewritten:
    def __init__(self, owner: _Rewriting, inner: Retriever) -> None:
        self._owner = owner
        self._inner = inner

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        results = self._inner.search(queries, k)
        self._owner.num_shown += sum(map(len, results))
        text = self._owner.text
        return [[replace(p, text=text, title=text[:80]) for p in found] for found in results]
