"""Criteria of environments, E11 to E22: what a step does, how episodes end, what crosses outside.

Owns what concerns the playing of a task, and the policies that are brought to play it; `tasks`
has what comes before.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from gymnasium.error import ResetNeeded

from searchrl.config.packaged import find_packaged, package_of
from searchrl.contracts import Retriever, RetrieverFactory, TokenBudget
from searchrl.core.episode import ANSWER, Action, Passage, Task
from searchrl.engine.episodes.boundary import step_env
from searchrl.plugins.registry import describe_error
from searchrl.rewards.answers import em
from searchrl.testing.criteria import NotApplicable, Problem, criterion
from searchrl.testing.kinds.envs import play as env_play
from searchrl.testing.kinds.trials import Way, drawn, judged, raises_nothing, unchanged
from searchrl.testing.kit.fuzz import catch, find_faulty, make_texts, shorten
from searchrl.testing.kit.policies import Step
from searchrl.testing.kit.texts import HARD_TEXTS
from searchrl.testing.probes.subject import Subject

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
    yield from raises_nothing(env_play.playing(_step_unchecked))(subject)
    env = env_play.make_env(subject)
    first, *_ = env_play.find_probes(env)

    def find_error(text: str) -> BaseException | None:
        return catch(_step_unchecked, env, (first, [text]))

    texts = make_texts([*subject.grammar.tags, *env_play.find_turns(subject, first)[0]])
    if found := find_faulty(HARD_TEXTS, texts, find_error):
        text, error = found
        yield Problem(f"step({shorten(text)}) raised {shorten(describe_error(error), 200)}", error)


@criterion("E12")
@judged(env_play.playing(_step_unchecked))
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
    wrong = subject.grammar.render(Action(ANSWER, env_play.WRONG_ANSWER), "a guess")
    dull = [wrong] * 50 if wrong is not None else ["not a turn at all"] * MAX_TURNS
    has_expert = "expert" in subject.entry.script_names  # others may be bad on purpose
    failures: list[Problem] = []
    num_played = 0
    for options in env_play.find_probes(env):
        low = env_play.play(env, (options, dull))
        if has_expert:
            ways = [("its scripted policy", env_play.replay_expert(subject, env, options))]
        else:
            ways = _gold_turns(subject, low.task)
        for who, turns in ways:
            num_played += 1
            best = env_play.play(env, (options, turns))
            at = env_play.find_own(env, "step", "make_task", "reset")
            if problem := _find_pay_problem(subject, who, best, low, bool(wrong)):
                failures.append(Problem(f"{options}: {problem}", at))
    if not num_played:
        raise NotApplicable("no scripted policy (expert=) and no gold answer says what is right")
    # A scripted policy may fail at times; an answer that is accepted is accepted.
    if failures and (not has_expert or len(failures) > num_played / 2):
        yield from failures


@criterion("E18")
def _can_travel(subject: Subject) -> Iterator[Problem]:
    env = env_play.make_env(subject)
    for episode in env_play.find_episodes(subject).values():
        played = env_play.play(env, episode)
        infos = [("reset", played.info), *(("step", step.info) for step in played.steps)]
        for method, info in infos:
            for name in ("task", "action", "passages", "signals"):
                if error := catch(lambda value: pickle.loads(pickle.dumps(value)), info.get(name)):
                    what = f"info['{name}'] of {method}() does not survive pickle"
                    at = env_play.find_own(env, *(("make_task",) if name == "task" else ()), method)
                    yield Problem(f"{what}: {describe_error(error)}", at)
                    return


_is_the_same_elsewhere = criterion("E19")(unchanged(env_play.ASKED_PLAINLY, Way.ELSEWHERE))
_bears_threads = criterion("E20")(unchanged(env_play.PLAYED_APART, Way.TOGETHER))
_draws = criterion("E21")(drawn(env_play.find_finished, env_play.make_own))


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
