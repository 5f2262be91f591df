"""Criteria of environments, E11 to E19: what a step does, how episodes end, what crosses outside.

Owns what concerns the playing of a task; `env_tasks` has what comes before.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gymnasium.error import ResetNeeded

from searchrl.contracts import (
    Retriever,
    TokenBudget,
    find_action_problem,
    find_passages_problem,
    is_finite_number,
)
from searchrl.core.episode import ANSWER, Action, Passage, Task
from searchrl.plugins.registry import describe_error
from searchrl.rewards.answers import em
from searchrl.testing.criteria import NotApplicable, Problem, criterion
from searchrl.testing.kinds.env_play import (
    ASKED_PLAINLY,
    WRONG_ANSWER,
    Played,
    find_dialogues,
    find_own,
    find_probes,
    find_turns,
    make_env,
    play,
    replay_expert,
)
from searchrl.testing.kinds.trials import Way, unchanged
from searchrl.testing.kit.fuzz import HARD_TEXTS, catch, find_example, make_texts, shorten
from searchrl.testing.probes.subject import Subject

MAX_TURNS = 2000
"""Turns after which an episode should long be over."""

BUDGET_WORDS = 64
"""Words that an observation may have when budgets are checked."""


@criterion("E11")
def _takes_any_text(subject: Subject) -> Iterator[Problem]:
    env = make_env(subject)
    first, *_ = find_probes(env)

    def find_error(
        turns: Sequence[str], options: Mapping[str, Any] = first
    ) -> BaseException | None:
        """What the turns raise, in an episode of their own."""
        env.reset(seed=0, options=dict(options))
        for turn in turns:
            try:
                returned = env.step(turn)
            except (Exception, SystemExit) as error:
                return error
            if not isinstance(returned, tuple) or any(map(bool, returned[2:4])):
                break
        return None

    grammar = subject.grammar
    dialogues = [([*turns], options) for options, turns in find_dialogues(subject, env)]
    dialogues += [([text], first) for text in HARD_TEXTS]
    found = next((dialogue for dialogue in dialogues if find_error(*dialogue)), None)
    if found is None:
        texts = make_texts([*grammar.tags, *find_turns(subject, first)[0]])
        text = find_example(texts, lambda text: find_error([text]) is not None)
        found = None if text is None else ([text], first)
    if found is not None and (error := find_error(*found)):
        turns, options = found
        said = f"{options}, turns {shorten(str(turns), 160)}" if len(turns) > 1 else ""
        said = f"step({shorten(turns[0])})" if not said else f"{said}: step()"
        yield Problem(f"{said} raised {shorten(describe_error(error), 200)}", error)


@criterion("E12")
def _returns_five(subject: Subject) -> Iterator[Problem]:
    env = make_env(subject)
    for options, turns in find_dialogues(subject, env):
        env.reset(seed=0, options=dict(options))
        for turn in turns:
            try:
                returned = env.step(turn)
            except (Exception, SystemExit):  # E11 finds it
                break
            if problem := _find_step_problem(returned):
                what = f"{options}, turn {shorten(turn)}: step() returned {problem}"
                yield Problem(what, find_own(env, "step"))
                return
            if returned[2] or returned[3]:
                break


@criterion("E13")
def _ends(subject: Subject) -> Iterator[Problem]:
    env = make_env(subject)
    for options, turns in find_dialogues(subject, env, 1):
        # Without the last turn, which may be an answer: going on is the point.
        going_on = turns[:-1] or turns
        repeated = [going_on[number % len(going_on)] for number in range(MAX_TURNS)]
        if not play(env, options, repeated).steps[-1].is_last:
            yield Problem(
                f"after {MAX_TURNS} turns like {shorten(going_on[0])} neither terminated nor "
                "truncated was true",
                find_own(env, "step"),
            )
            return


@criterion("E14")
def _stays_over(subject: Subject) -> Iterator[Problem]:
    env = make_env(subject)
    options, turns = find_dialogues(subject, env, 1)[0]
    repeats = -(-MAX_TURNS // len(turns))
    if not play(env, options, turns * repeats).steps[-1].is_last:
        raise NotApplicable("no episode ended (E13)")
    error = catch(env.step, turns[0])
    if error is None:
        yield Problem("step() went on after the episode had ended", find_own(env, "step"))
    elif not isinstance(error, ResetNeeded):
        yield Problem(f"after the end of the episode, step() raised {describe_error(error)}", error)


@criterion("E15")
def _keeps_to_budget(subject: Subject) -> Iterator[Problem]:
    long = " ".join(f"word{i}" for i in range(10 * BUDGET_WORDS))
    env = make_env(subject, _Rewriting(subject.retriever, long).make)
    if not hasattr(env.unwrapped, "budget"):
        raise NotApplicable("it has no attribute `budget`: its observations are shown as they are")
    budget = TokenBudget.words(BUDGET_WORDS)
    for options, turns in find_dialogues(subject, env, 3):
        setattr(env.unwrapped, "budget", budget)  # noqa: B010  # no attribute of gymnasium.Env
        played = play(env, options, turns)
        for turn, step in zip(played.turns, played.steps, strict=True):
            length = budget.count(str(step.observation))
            if length > budget.max_tokens:
                yield Problem(
                    f"under a budget of {budget.max_tokens} words the turn {shorten(turn)} "
                    f"brought an observation of {length}",
                    find_own(env, "step"),
                )
                return


@criterion("E16")
def _is_not_fooled(subject: Subject) -> Iterator[Problem]:
    grammar = subject.grammar
    evil = _Rewriting(subject.retriever, grammar.forged)
    plain = _Rewriting(subject.retriever, "harmless")
    env, clean = make_env(subject, evil.make), make_env(subject, plain.make)
    for options, turns in find_dialogues(subject, env, 3):
        played, harmless = play(env, options, turns), play(clean, options, turns)
        for turn, step, other in zip(played.turns, played.steps, harmless.steps, strict=False):
            shown, usual = str(step.observation), str(other.observation)
            if more := [tag for tag in grammar.tags if shown.count(tag) > usual.count(tag)]:
                yield Problem(
                    f"a passage that holds {shorten(grammar.forged)} was shown to the model as it "
                    f"is, {' '.join(more)} included (turn {shorten(turn)})",
                    find_own(env, "step"),
                )
                return
    if not evil.num_shown:
        raise NotApplicable("it showed no passage of the retriever in the episodes of this check")


@criterion("E17")
def _pays_right_answers(subject: Subject) -> Iterator[Problem]:
    env = make_env(subject)
    wrong = subject.grammar.render(Action(ANSWER, WRONG_ANSWER), "a guess")
    dull = [wrong] * 50 if wrong is not None else ["not a turn at all"] * MAX_TURNS
    has_expert = "expert" in subject.entry.script_names  # others may be bad on purpose
    failures: list[Problem] = []
    num_played = 0
    for options in find_probes(env):
        low = play(env, options, dull)
        if has_expert:
            ways = [("its scripted policy", replay_expert(subject, env, options))]
        else:
            ways = _gold_turns(subject, low.task)
        for who, turns in ways:
            num_played += 1
            best = play(env, options, turns)
            at = find_own(env, "step", "make_task", "reset")
            if problem := _find_pay_problem(subject, who, best, low, bool(wrong)):
                failures.append(Problem(f"{options}: {problem[0]}", at, problem[1]))
    if not num_played:
        raise NotApplicable(
            "neither a scripted policy (expert=) nor gold answers say what is right"
        )
    # A scripted policy may fail at times; an answer that is accepted is accepted.
    if failures and (not has_expert or len(failures) > num_played / 2):
        yield from failures


@criterion("E18")
def _can_travel(subject: Subject) -> Iterator[Problem]:
    env = make_env(subject)
    for options, turns in find_dialogues(subject, env):
        played = play(env, options, turns)
        infos = [("reset", played.info), *(("step", step.info) for step in played.steps)]
        for method, info in infos:
            for name in ("task", "action", "passages", "signals"):
                if error := catch(_send, info.get(name)):
                    yield Problem(
                        f"info['{name}'] of {method}() does not survive pickle: "
                        f"{describe_error(error)}",
                        find_own(env, *(("make_task",) if name == "task" else ()), method),
                    )
                    return


_is_the_same_elsewhere = criterion("E19")(unchanged(ASKED_PLAINLY, Way.ELSEWHERE))


def _send(value: object) -> None:
    pickle.loads(pickle.dumps(value))


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


def _gold_turns(subject: Subject, task: Task | None) -> list[tuple[str, tuple[str, ...]]]:
    """One dialogue per gold answer, if the protocol writes answers."""
    if task is None or not isinstance(task.answers, tuple | list):
        return []
    golds = [gold for gold in task.answers if isinstance(gold, str)]
    turns = [(gold, subject.grammar.render(Action(ANSWER, gold), "I know.")) for gold in golds]
    return [(f"the gold answer {shorten(gold)}", (turn,)) for gold, turn in turns if turn]


def _find_pay_problem(
    subject: Subject, who: str, best: Played, low: Played, has_answers: bool
) -> tuple[str, str] | None:
    """What is wrong with the pay, and how to fix it if not with a higher reward."""
    if not best.steps or not best.steps[-1].is_last:
        return f"{who} does not end the episode", "terminate when an answer is given"
    answers = best.task.answers if best.task is not None else ()
    if has_answers and answers:
        said = subject.grammar.protocol.final_answer(best.turns)
        if em(said, answers) < 1:
            return (
                f"{who} answers {said!r}, which is none of the gold answers {answers!r}",
                "put every accepted answer into Task.answers, as the model would write it",
            )
    if best.env_return <= low.env_return:
        return f"{who} earns {best.env_return:g}; wrong turns earn {low.env_return:g}", ""
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
