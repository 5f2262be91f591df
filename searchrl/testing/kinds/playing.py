"""The making and playing of environments that are checked: the same tasks and turns for all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium

from searchrl.contracts import Retriever, RetrieverFactory
from searchrl.core.episode import ANSWER, SEARCH, TOOL, Action, Passage, Task, ToolCall
from searchrl.testing.criteria import NotApplicable
from searchrl.testing.kit.fuzz import shorten
from searchrl.testing.kit.policies import Says, Step, play_turns
from searchrl.testing.kit.subject import Subject
from searchrl.testing.kit.tags import MARK
from searchrl.testing.trials import Trial

SPLITS = ("train", "test")
"""The splits of an environment that does not list its own."""
WRONG_ANSWER = "surely not this"
MAX_REPLAYED = 100
"""Turns of a scripted policy that are played."""
MAX_TURNS = 2000
"""Turns after which an episode should long be over."""
NUM_PROBES = 8
"""Tasks of each split that are looked at."""

Env = gymnasium.Env[Any, Any]
Options = dict[str, Any]
"""The options of `reset`: `split` and `index`."""
Episode = tuple[Options, Sequence[str]]
"""An episode to play: the options of its reset, and the turns."""


@dataclass(frozen=True, slots=True)
class Played:
    """An episode, or the beginning of one."""

    prompt: str
    turns: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def env_return(self) -> float:
        """The sum of the step rewards."""
        return float(sum(step.reward for step in self.steps))


def make_env(subject: Subject, retriever: RetrieverFactory | None = None) -> Env:
    """A new instance."""
    if subject.entry.name.endswith(":") and not subject.entry.argument:
        name = subject.entry.name
        raise NotApplicable(f"'{name}' is a scheme; check '{name}NAME'")
    protocol = subject.grammar.protocol
    made: Env = subject.make(protocol=protocol, retriever=retriever or subject.retriever)
    return made


def reset(env: Env, options: Mapping[str, Any], seed: int = 0) -> tuple[Any, Any]:
    """Reset with split and index; what it raises says with which."""
    try:
        prompt, info = env.reset(seed=seed, options=dict(options))
    except (Exception, SystemExit) as error:
        error.add_note(f"in reset(seed={seed}, options={dict(options)})")
        raise
    return prompt, info


def play(env: Env, episode: Episode) -> Played:
    """Play turns until they or the episode are at their end."""
    options, turns = episode
    prompt, _ = reset(env, options)
    steps = tuple(step for _, step in play_turns(env, Says(turns).act, prompt, len(turns)))
    return Played(prompt, tuple(turns[: len(steps)]), steps)


def step_unchecked(env: Env, episode: Episode) -> list[Any]:
    """The values that `step` returns for each turn, up to the end or to one that is no result."""
    options, turns = episode
    reset(env, options)
    returned: list[Any] = []
    for turn in turns:
        returned.append(env.step(turn))
        if not isinstance(returned[-1], tuple) or any(map(bool, returned[-1][2:4])):
            break
    return returned


def splits_of(env: Env) -> tuple[str, ...]:
    """The splits that the environment lists in `splits`, or those that programs ask for."""
    return tuple(getattr(env.unwrapped, "splits", ()) or SPLITS)


def count_tasks(env: Env, split: str) -> int:
    """The number of tasks of a split; 0 if it does not say, which E9 looks at."""
    try:
        count = env.get_wrapper_attr("num_tasks")(split)
    except (Exception, SystemExit):
        return 0
    return count if isinstance(count, int) and not isinstance(count, bool) else 0


def spread(count: int, most: int) -> list[int]:
    """At most `most` indices below `count`: all, or as many at even distances, first and last."""
    if count <= most:
        return [*range(count)]
    return [i * (count - 1) // (most - 1) for i in range(most)]


def find_probes(env: Env) -> tuple[Options, ...]:
    """Reset options of the tasks that are looked at, of one split after the other in turn."""
    splits = [(split, spread(count_tasks(env, split), NUM_PROBES)) for split in splits_of(env)]
    probes = [
        {"split": split, "index": indices[place]}
        for place in range(NUM_PROBES)
        for split, indices in splits
        if place < len(indices)
    ]
    if not probes:
        raise NotApplicable("it does not say how many tasks its splits have (E9)")
    return tuple(probes)


def find_turns(subject: Subject, options: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Dialogues to play on a task: searching, calling tools, answering, and its expert's own."""
    env = make_env(subject)
    prompt, info = reset(env, options)
    task = info.get("task")
    question = task.question if isinstance(task, Task) else prompt
    say = partial(subject.grammar.render, thought="I look this up.")
    queries = (str(question), str(prompt)[:200], MARK)
    searches = [say(Action(SEARCH, (query,))) for query in queries]
    answer = say(Action(ANSWER, WRONG_ANSWER))
    samples: list[str] = []
    with contextlib.suppress(Exception, SystemExit):  # E3 looks at the spaces
        env.action_space.seed(0)
        drawn = [env.action_space.sample() for _ in range(6)]
        samples = [sample for sample in drawn if isinstance(sample, str)]
    dialogues: list[Sequence[str | None]] = [
        [*searches, answer],
        ["not a turn at all", *samples[:3], answer],
        [answer],
        samples,
    ]
    if subject.tools:
        calls = [ToolCall("no_such_tool", {"word": MARK})]
        for tool in subject.tools:
            sound = sample_arguments(tool)
            swapped = {key: 7 if isinstance(one, str) else "seven" for key, one in sound.items()}
            more = {**sound, "surely_not": 1}
            every: tuple[dict[str, Any], ...] = (sound, {}, swapped, dict.fromkeys(sound), more)
            calls += [ToolCall(str(tool.get("name")), given) for given in every]
        dialogues += [[say(Action(TOOL, call)), answer] for call in calls]
    if subject.entry.script_names:
        dialogues.append(replay(subject, env, options, subject.entry.script_names[0])[0])
    kept = [tuple(turn for turn in dialogue if turn is not None) for dialogue in dialogues]
    return tuple(dialogue for dialogue in kept if dialogue)


def find_episodes(subject: Subject, num_tasks: int | None = None) -> dict[str, Episode]:
    """Reset options and turns of every dialogue on the first `num_tasks` tasks, under its name."""
    probes = find_probes(make_env(subject))[:num_tasks]
    episodes = [(options, turns) for options in probes for turns in find_turns(subject, options)]
    return {
        f"{options}, episode {number} (its turns begin with {shorten(turns[0])})": (options, turns)
        for number, (options, turns) in enumerate(episodes, 1)
    }


def replay(
    subject: Subject, env: Env, options: Mapping[str, Any], script: str
) -> tuple[tuple[str, ...], BaseException | None]:
    """The turns of a scripted policy until something fails, and its error, if any."""
    observation, info = reset(env, options)
    turns: list[str] = []
    try:
        make: Any = subject.entry.load_script(script)
        policy = make(env.unwrapped, info.get("task"), subject.grammar.protocol)
        for _ in range(MAX_REPLAYED):
            turns.append(policy.act(observation))
            with contextlib.suppress(Exception, SystemExit):  # of the environment
                step = Step(*env.step(turns[-1]))
                if not step.is_last:
                    observation = step.observation
                    continue
            break
    except (Exception, SystemExit) as error:
        return tuple(turns), error
    return tuple(turn for turn in turns if isinstance(turn, str)), None


def sample_arguments(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a tool as its JSON schema asks for them, as far as it is a simple one."""
    schema = tool.get("parameters", {}).get("properties", {})
    samples = {"integer": 1, "number": 1.5, "boolean": True, "array": [MARK], "object": {}}
    return {
        name: one["enum"][0] if one.get("enum") else samples.get(one.get("type"), MARK)
        for name, one in schema.items()
    }


def identify(env: Env, options: Options) -> tuple[str, str]:
    """The content of a task, apart from its number, as text; and its id, if it has a record."""
    prompt, info = reset(env, options)
    task = info.get("task")
    if not isinstance(task, Task):
        return repr(prompt), ""
    return repr((prompt, replace(task, id="", split="", index=0))), task.id


def find_own(env: object, *names: str) -> object:
    """The first of these methods that is not inherited from us, else the class."""
    target = type(getattr(env, "unwrapped", env))
    for name in names:
        method = getattr(target, name, None)
        module = getattr(method, "__module__", "") or ""
        if method is not None and module.partition(".")[0] not in ("searchrl", "gymnasium"):
            return method
    return target


def _asked_cases(subject: Subject) -> dict[str, tuple[Options, int]]:
    env = make_env(subject)
    cases = {f"{options}": (options, 0) for options in find_probes(env)}
    # Without an index the task is drawn from the seed.
    drawn = {"split": splits_of(env)[0]}
    return {**cases, f"{drawn} with seed 7": (drawn, 7)}


def _ask(env: Env, case: tuple[Options, int]) -> dict[str, object]:
    prompt, info = reset(env, *case)
    task = info.get("task")
    return {
        "its prompt": prompt,
        "its gold answers": getattr(task, "answers", None),
        "its task": replace(task, meta={}) if isinstance(task, Task) else repr(task),
    }


def trace(played: Played) -> dict[str, object]:
    """The course of an episode, for comparing."""
    traces: dict[str, object] = {"its prompt": played.prompt}
    for number, step in enumerate(played.steps, 1):
        traces |= {
            f"the observation of turn {number}": step.observation,
            f"the reward of turn {number}": repr(step.reward),
            f"the end at turn {number}": (bool(step.terminated), bool(step.truncated)),
            f"the signals of turn {number}": sorted(dict(step.info.get("signals", {})).items()),
            f"the passages of turn {number}": [p.id for p in step.info.get("passages", ())],
        }
    return traces


def _where_asked(subject: Subject, case: object) -> object:
    return find_own(make_env(subject), "reset", "make_prompt", "make_task")


def playing(
    ask: Callable[[Any, Any], object],
    num_tasks: int | None = None,
    make: Callable[[Subject], Any] = make_env,
) -> Trial:
    """A trial that plays every dialogue on the first `num_tasks` tasks."""
    return Trial(
        lambda subject: find_episodes(subject, num_tasks),
        ask,
        make,
        lambda subject, case: find_own(make_env(subject), "step", "reset"),
    )


BEGUN = Trial(
    lambda subject: {f"{options}": options for options in find_probes(make_env(subject))},
    lambda env, options: env.reset(seed=0, options=options),
    make_env,
    _where_asked,
)
ASKED = Trial(_asked_cases, _ask, make_env, _where_asked)
PLAYED = playing(lambda env, case: trace(play(env, case)), 6)


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
            return [[replace(p, text=text, title=text[:80]) for p in one] for one in results]

        made: Any = SimpleNamespace(search=search)
        return made  # type: ignore[no-any-return]
