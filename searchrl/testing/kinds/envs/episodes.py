"""Criteria of environments, E11 to E22: what a step does, how episodes end, what crosses outside.

Owns what concerns the playing of a task, and the policies that are brought to play it; `tasks`
has what comes before.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import methodcaller
from types import SimpleNamespace
from typing import Any

from gymnasium.error import ResetNeeded

from searchrl.calls.pinned import Pinned
from searchrl.config.packaged import find_packaged, package_of
from searchrl.contracts import Retriever, RetrieverFactory, TokenBudget
from searchrl.core.episode import ANSWER, TOOL, Action, Passage, Task, ToolCall
from searchrl.engine.episodes.boundary import step_env
from searchrl.plugins.registry import describe_error
from searchrl.rewards.answers import em, normalize_n1, tokenize
from searchrl.testing.criteria import NotApplicable, Problem, criterion
from searchrl.testing.kinds.envs import play as env_play
from searchrl.testing.kinds.trials import Way, find_difference, judged, raises_nothing
from searchrl.testing.kit.fuzz import catch, find_faulty, make_texts, shorten
from searchrl.testing.kit.policies import Step
from searchrl.testing.kit.subject import Subject
from searchrl.testing.kit.texts import HARD_TEXTS

MAX_TURNS = 2000
"""Turns after which an episode should long be over."""

BUDGET_WORDS = 64
"""Words that an observation may have when budgets are checked."""


def _step_unchecked(env: env_play.Env, episode: env_play.Episode) -> list[Any]:
    """What `step` returns for each turn, up to the end or to what is no result of a step."""
    options, turns = episode
    env_play.reset(env, options)
    returned: list[Any] = []
    for turn in turns:
        returned.append(env.step(turn))
        if not isinstance(returned[-1], tuple) or any(map(bool, returned[-1][2:4])):
            break
    return returned


@criterion("E11")
def _takes_any_text(subject: Subject) -> Iterator[Problem]:
    yield from raises_nothing(env_play.playing(_step_unchecked, 6))(subject)
    env = env_play.make_env(subject)
    first, *_ = env_play.find_probes(env)

    def find_error(text: str) -> BaseException | None:
        return catch(_step_unchecked, env, (first, [text]))

    texts = make_texts([*subject.grammar.tags, *env_play.find_turns(subject, first)[0]])
    if found := find_faulty(HARD_TEXTS, texts, find_error):
        text, error = found
        yield Problem(f"step({shorten(text)}) raised {shorten(describe_error(error), 200)}", error)


@criterion("E12")
@judged(env_play.playing(_step_unchecked, 6))
def _returns_five(episode: env_play.Episode, returned: Sequence[Any]) -> str:
    for turn, values in zip(episode[1], returned, strict=False):
        if problem := _find_step_problem(values):
            return f"turn {shorten(turn)}: {problem}"
    return ""


def _go_on(env: env_play.Env, episode: env_play.Episode) -> Step:
    options, turns = episode
    # Without the last turn, which may be an answer: going on is the point.
    turns = turns[:-1] or turns
    repeated = [turns[number % len(turns)] for number in range(MAX_TURNS)]
    return env_play.play(env, (options, repeated)).steps[-1]


@criterion("E13")
@judged(env_play.playing(_go_on, 1))
def _ends(episode: env_play.Episode, last: Step) -> str:
    what = f"after {MAX_TURNS} such turns neither terminated nor truncated was true"
    return "" if last.is_last else what


@criterion("E14")
def _stays_over(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    options, turns = next(iter(env_play.find_episodes(subject, 1).values()))
    if not env_play.play(env, (options, [*turns] * MAX_TURNS)).steps[-1].is_last:
        raise NotApplicable("no episode ended (E13)")
    error = catch(env.step, turns[0])
    if error is None:
        yield Problem("step() went on after the episode had ended", env_play.find_own(env, "step"))
    elif not isinstance(error, ResetNeeded):
        yield Problem(f"after the end of the episode, step() raised {describe_error(error)}", error)


_BUDGET = TokenBudget.words(BUDGET_WORDS)


def _make_long(subject: Subject) -> env_play.Env:
    long = " ".join(f"word{i}" for i in range(10 * BUDGET_WORDS))
    env = env_play.make_env(subject, Rewriting(subject.retriever, long))
    if not hasattr(env.unwrapped, "budget"):
        raise NotApplicable("it has no attribute `budget`: its observations are shown as they are")
    return env


def _play_within(env: env_play.Env, episode: env_play.Episode) -> env_play.Played:
    setattr(env.unwrapped, "budget", _BUDGET)  # noqa: B010  # no attribute of gymnasium.Env
    return env_play.play(env, episode)


@criterion("E15")
@judged(env_play.playing(_play_within, 3, _make_long))
def _keeps_to_budget(episode: env_play.Episode, played: env_play.Played) -> str:
    for turn, step in zip(played.turns, played.steps, strict=True):
        if (length := _BUDGET.count(str(step.observation))) > BUDGET_WORDS:
            brought = f"the turn {shorten(turn)} brought an observation of {length}"
            return f"under a budget of {BUDGET_WORDS} words {brought}"
    return ""


@criterion("E16")
def _is_not_fooled(subject: Subject) -> Iterator[Problem]:
    grammar = subject.grammar
    evil = Rewriting(subject.retriever, grammar.forged)
    env = env_play.make_env(subject, evil)
    clean = env_play.make_env(subject, Rewriting(subject.retriever, "harmless"))
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
    env = env_play.make_env(subject)
    golds = list(dict.fromkeys(gold for task in _find_tasks(env) for gold in task.answers))
    has_expert = "expert" in subject.entry.script_names  # others may be bad on purpose
    failures: list[Problem] = []
    num_played = 0
    for options in env_play.find_probes(env):
        task = env_play.reset(env, options)[1].get("task")
        # What is right elsewhere looks like an answer. It may be nearly right here, so the worst
        # of several counts.
        accepted = task.answers if isinstance(task, Task) else ()
        others = [gold for gold in golds if em(gold, accepted) < 1] or [env_play.WRONG_ANSWER]
        tried = []
        for guess in (others[place] for place in env_play.spread(len(others), 3)):
            wrong = subject.grammar.render(Action(ANSWER, guess), "a guess")
            dull = [wrong] * 50 if wrong is not None else ["not a turn at all"] * MAX_TURNS
            tried.append((env_play.play(env, (options, dull)), guess))
        low, guess = min(tried, key=lambda one: one[0].env_return)
        for script in subject.entry.script_names:
            turns, raised = env_play.replay(subject, env, options, script)
            if raised is not None:
                what = f"{options}: the scripted policy '{script}' raised {describe_error(raised)}"
                yield Problem(what, raised)
                return
            if script == "expert":
                ways = [("its scripted policy", turns)]
        if not has_expert:
            ways = _gold_turns(subject, low.task)
        for who, turns in ways:
            num_played += 1
            best = env_play.play(env, (options, turns))
            at = env_play.find_own(env, "step", "make_task", "reset")
            if problem := _find_pay_problem(subject, who, best, low, bool(wrong)):
                said = f" ({guess!r}, right for another task)" if wrong and guess in golds else ""
                failures.append(Problem(f"{options}: {problem}{said}", at))
    if not num_played:
        raise NotApplicable("no scripted policy (expert=) and no gold answer says what is right")
    # A scripted policy may fail at times; an answer that is accepted is accepted.
    if failures and (not has_expert or len(failures) > num_played / 2):
        yield from failures


@criterion("E18")
def _can_travel(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    for episode in env_play.find_episodes(subject, 6).values():
        played = env_play.play(env, episode)
        infos = [("reset", played.info), *(("step", step.info) for step in played.steps)]
        for method, info in infos:
            for name in ("task", "action", "passages", "signals"):
                if error := catch(lambda value: pickle.loads(pickle.dumps(value)), info.get(name)):
                    what = f"info['{name}'] of {method}() does not survive pickle"
                    at = env_play.find_own(env, *(("make_task",) if name == "task" else ()), method)
                    yield Problem(f"{what}: {describe_error(error)}", at)
                    return


def _say_calls(tools: Sequence[Mapping[str, Any]], forged: str) -> Iterator[tuple[str, ToolCall]]:
    """Calls that a model may make of tools, each under the words that name it."""
    for tool in tools:
        name, sound = str(tool.get("name")), env_play.sample_arguments(tool)
        texts = [key for key, value in sound.items() if isinstance(value, str)]
        swapped = {key: 7 if isinstance(one, str) else "seven" for key, one in sound.items()}
        for what, arguments in (
            ("right arguments", sound),
            ("no arguments", {}),
            ("arguments of other types", swapped),
            ("arguments that are null", dict.fromkeys(sound)),
            ("an argument too many", {**sound, "surely_not": 1}),
            ("very long arguments", sound | dict.fromkeys(texts, "long " * 20_000)),
            ("arguments that hold tags", sound | dict.fromkeys(texts, forged)),
        ):
            yield f"a call of '{name}' with {what}", ToolCall(name, arguments)
    yield "a call of a tool that does not exist", ToolCall("no_such_tool", {"word": "x"})


@criterion("E19")
def _takes_any_call(subject: Subject) -> Iterator[Problem]:
    tools, grammar = subject.entry.tools, subject.grammar
    if not tools:
        raise NotApplicable("it registers no tools (tools=)")
    env = env_play.make_env(subject)
    options, *_ = env_play.find_probes(env)
    if has_budget := hasattr(env.unwrapped, "budget"):
        setattr(env.unwrapped, "budget", _BUDGET)  # noqa: B010  # no attribute of gymnasium.Env
    num_played, usual = 0, ""
    for what, call in _say_calls(tools, grammar.forged):
        if (turn := grammar.render(Action(TOOL, call), "I call it.")) is None:
            continue
        num_played += 1
        try:
            (returned,) = _step_unchecked(env, (options, [turn]))
        except (Exception, SystemExit) as error:
            yield Problem(f"{what}: step() raised {describe_error(error)}", error)
            continue
        at = env_play.find_own(env, "step")
        if problem := _find_step_problem(returned):
            yield Problem(f"{what}: {problem}", at)
            continue
        observation, _, terminated, truncated, _ = returned
        usual = usual or observation
        if not observation.strip() and not (terminated or truncated):
            yield Problem(f"{what} brought an observation without a word", at)
        elif has_budget and (length := _BUDGET.count(observation)) > BUDGET_WORDS:
            yield Problem(f"{what} brought {length} words, under a budget of {BUDGET_WORDS}", at)
        elif grammar.forged in call.arguments.values() and (
            more := [t for t in grammar.tags if observation.count(t) > usual.count(t)]
        ):
            fix = "show results through protocol.render_notice(text, self.budget)"
            yield Problem(f"{what}: the result holds {' '.join(more)} as it is", at, fix)
    if not num_played:
        raise NotApplicable(f"protocol '{grammar.protocol.name}' writes no calls of tools")


@criterion("E20")
def _bears_another_instance(subject: Subject) -> Iterator[Problem]:
    cases = [*env_play.find_episodes(subject, 2).items()]
    for (name, episode), (_, other) in zip(cases, [*cases[1:], cases[0]], strict=True):
        alone = env_play.trace(env_play.play(env_play.make_env(subject), episode))
        beside = env_play.trace(_play_beside(subject, episode, other))
        if what := find_difference(name, alone, beside, Way.BESIDE):
            yield Problem(what, env_play.find_own(env_play.make_env(subject), "step", "reset"))
            return


def _play_beside(
    subject: Subject, one: env_play.Episode, other: env_play.Episode
) -> env_play.Played:
    """The first of two episodes, which take turns; each instance lives in a thread of its own."""
    played: list[env_play.Played] = []
    envs = [Pinned(partial(env_play.make_env, subject), "the environment") for _ in range(2)]
    for env, (options, _) in zip(envs, (one, other), strict=True):
        prompt, info = env.ask(partial(env_play.reset, options=options))
        played.append(env_play.Played(prompt, info, (), ()))
    for number in range(len(one[1])):
        for place, (_, turns) in enumerate((one, other)):
            so_far = played[place]
            is_over = bool(so_far.steps) and so_far.steps[-1].is_last
            if is_over or number >= len(turns):
                continue
            step = Step(*envs[place].ask(methodcaller("step", turns[number])))
            steps, said = (*so_far.steps, step), (*so_far.turns, turns[number])
            played[place] = replace(so_far, turns=said, steps=steps)
    for env in envs:
        env.ask(methodcaller("close"))
    return played[0]


@criterion("E21")
def _keeps_gold_back(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    shown: list[tuple[str, tuple[str, ...]]] = []
    for options in env_play.find_probes(env):
        prompt, info = env_play.reset(env, options)
        task = info.get("task")
        if isinstance(task, Task) and task.answers:
            shown.append((str(prompt), task.answers))
    if len({answers for _, answers in shown}) < 3:
        raise NotApplicable("fewer than three tasks with gold answers of their own")
    # Beside the same word everywhere it can be copied; among others to choose from it cannot.
    if set.intersection(*(_find_neighbours(*one) for one in shown)):
        prompt, (gold, *_) = shown[0]
        what = f"the gold answer stands in every prompt: {gold!r} in {shorten(prompt, 200)}"
        yield Problem(what, env_play.find_own(env, "make_prompt", "make_task", "reset"))


def _find_neighbours(prompt: str, golds: Sequence[str]) -> set[tuple[str, str]]:
    """The words before and after gold answers in a prompt; "" at its ends."""
    words = ["", *tokenize(normalize_n1(prompt)), ""]
    found: set[tuple[str, str]] = set()
    for gold in (tokenize(normalize_n1(gold)) for gold in golds):
        for start in range(1, len(words) - len(gold)):
            if gold and words[start : start + len(gold)] == gold:
                found |= {("before", words[start - 1]), ("after", words[start + len(gold)])}
    return found


def _find_tasks(env: env_play.Env) -> list[Task]:
    """The tasks that are looked at, as far as they are described."""
    infos = (env_play.reset(env, options)[1] for options in env_play.find_probes(env))
    return [task for info in infos if isinstance(task := info.get("task"), Task)]


@criterion("E22")
def _brings_policies(subject: Subject) -> Iterator[Problem]:
    if not subject.entry.policies:
        raise NotApplicable("it registers no policies: --model tiny is SearchRL's own")
    for protocol, name in subject.entry.policies.items():
        what = f"the policy '{name}' for protocol '{protocol}'"
        if protocol not in subject.registry.names("protocol"):
            fix = "name a registered protocol, as `searchrl plugins` lists them"
            yield Problem(f"{what}: there is no protocol '{protocol}'", fix=fix)
        if (folder := find_packaged(name)) is None:
            yield Problem(f"{what}: there is no such folder in package '{package_of(name)}'")
            continue
        files = ("config.json", "tokenizer.json", "model.safetensors")
        if missing := [file for file in files if not (folder / file).is_file()]:
            yield Problem(f"{what}: '{folder}' has no {' and no '.join(missing)}")
        elif not json.loads((folder / "config.json").read_text("utf-8")).get("searchrl_tiny"):
            yield Problem(f'{what}: its config.json does not say "searchrl_tiny": true')


def _find_step_problem(returned: Any) -> str:
    """Say what is wrong with what `step` returned, or "". `step_env` checks the same in a run."""
    if not isinstance(returned, tuple) or len(returned) != 5:
        return f"step() returned {shorten(str(returned))}; expected five values"
    *_, terminated, truncated, info = returned
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if type(flag).__name__ not in ("bool", "bool_"):
            return f"step() returned {name} = {flag!r}; expected True or False"
    if not isinstance(info, dict) or not isinstance(info.get("signals", {}), Mapping):
        said = f"step() returned {shorten(str(info))} as its info"
        return f"{said}; expected a dict, also as 'signals'"
    stub: Any = SimpleNamespace(step=lambda text: returned)
    error = catch(step_env, stub, "")
    return "" if error is None else str(error)


def _gold_turns(subject: Subject, task: Task | None) -> list[tuple[str, tuple[str, ...]]]:
    """One dialogue per gold answer, if the protocol writes answers."""
    if task is None or not isinstance(task.answers, tuple | list):
        return []
    golds = [gold for gold in task.answers if isinstance(gold, str)]
    turns = [(gold, subject.grammar.render(Action(ANSWER, gold), "I know.")) for gold in golds]
    return [(f"the gold answer {shorten(gold)}", (turn,)) for gold, turn in turns if turn]


def _find_pay_problem(
    subject: Subject, who: str, best: env_play.Played, low: env_play.Played, has_answers: bool
) -> str:
    """What is wrong with the pay of a way to play, or ""."""
    if not best.steps or not best.steps[-1].is_last:
        return f"{who} does not end the episode"
    answers = best.task.answers if best.task is not None else ()
    if has_answers and answers:
        said = subject.grammar.protocol.final_answer(best.turns)
        if em(said, answers) < 1:
            return f"{who} answers {said!r}, which is none of the gold answers {answers!r}"
    if best.env_return <= low.env_return:
        return f"{who} earns {best.env_return:g}; wrong turns earn {low.env_return:g}"
    return ""


class Rewriting:
    """A retriever factory whose passages say something else; counts those it gave."""

    def __init__(self, factory: RetrieverFactory, text: str) -> None:
        self._factory = factory
        self._text = text
        self.num_shown = 0

    def __call__(self, passages: Sequence[Passage], **settings: Any) -> Retriever:
        """A retriever over the passages, whose results are rewritten."""
        inner = self._factory(passages)

        def search(queries: Sequence[str], k: int) -> list[list[Passage]]:
            results = inner.search(queries, k)
            self.num_shown += sum(map(len, results))
            text = self._text
            return [[replace(p, text=text, title=text[:80]) for p in found] for found in results]

        made: Any = SimpleNamespace(search=search)
        return made  # type: ignore[no-any-return]
