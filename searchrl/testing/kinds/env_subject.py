"""The environment that is held to criteria: how to make, begin and play it, time and again.

Owns fresh instances, the tasks that are looked at and the turns that are played, so that every
criterion looks at the same ones. What the environment raises is one criterion's finding; the
others do not apply then (`NotApplicable`) instead of saying the same. Judges nothing itself.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import gymnasium

from searchrl.contracts import RetrieverFactory, TagProtocol
from searchrl.core.episode import ANSWER, SEARCH, Action, Task
from searchrl.plugins.registry import Entry, Registry
from searchrl.retrieval.indexes import IndexCache
from searchrl.testing.criteria import NotApplicable
from searchrl.testing.kit.tags import MARK, render

RETRIEVER = "bm25"

SPLITS = ("train", "test")
"""The splits that programs ask for, of an environment that does not list its own."""

WRONG_ANSWER = "surely not this"


class Step(NamedTuple):
    """What `step` returned, unchecked."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any

    @property
    def is_last(self) -> bool:
        """Whether the episode is over."""
        return bool(self.terminated or self.truncated)


@dataclass(frozen=True, slots=True)
class Played:
    """An episode, or the beginning of one."""

    prompt: str
    info: Mapping[str, Any]
    turns: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def task(self) -> Task | None:
        """The record of the task, if the environment gives one."""
        task = self.info.get("task")
        return task if isinstance(task, Task) else None

    @property
    def env_return(self) -> float:
        """The sum of the step rewards."""
        return float(sum(step.reward for step in self.steps))

    @property
    def traces(self) -> list[tuple[Any, ...]]:
        """What a repetition must repeat, per step: texts, numbers and passages."""
        return [
            (
                step.observation,
                repr(step.reward),
                bool(step.terminated),
                bool(step.truncated),
                repr(sorted(dict(step.info.get("signals", {})).items())),
                tuple(getattr(p, "id", "") for p in step.info.get("passages", ())),
            )
            for step in self.steps
        ]


@dataclass(frozen=True)
class EnvSubject:
    """One registered environment with its settings, its protocol and a retriever."""

    registry: Registry
    entry: Entry
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, registry: Registry, entry: Entry, settings: Mapping[str, Any] | None = None
    ) -> EnvSubject:
        """The subject of a registration; raises `ConfigError` for settings it does not take."""
        return cls(registry, entry, entry.ensure_settings(settings or {}))

    @cached_property
    def protocol(self) -> TagProtocol:
        """The protocol its registration names, or the default one."""
        made: TagProtocol = self.registry.make_protocol(self.entry, self.entry.protocol, {})
        return made

    @cached_property
    def retriever(self) -> IndexCache:
        """The default retriever; instances share its indexes, as those of a run do."""
        return IndexCache(self.registry.get("retriever", RETRIEVER).load())

    # Making and playing.

    def make(self, retriever: RetrieverFactory | None = None) -> gymnasium.Env[Any, Any]:
        """A new instance. Raises whatever the factory raises."""
        factory = self.entry.load()
        made: gymnasium.Env[Any, Any] = factory(
            protocol=self.protocol, retriever=retriever or self.retriever, **self.settings
        )
        return made

    def fresh(self, retriever: RetrieverFactory | None = None) -> gymnasium.Env[Any, Any]:
        """A new instance for every criterion but the first."""
        if self.entry.name.endswith(":") and not self.entry.argument:
            raise NotApplicable(f"'{self.entry.name}' is a scheme; check '{self.entry.name}NAME'")
        try:
            env = self.make(retriever)
        except (Exception, SystemExit) as error:
            raise NotApplicable("it could not be made (E1)") from error
        if not isinstance(env, gymnasium.Env):
            raise NotApplicable(f"its factory returned {type(env).__name__} (E1)")
        return env

    def begin(
        self, env: gymnasium.Env[Any, Any], options: Mapping[str, Any], seed: int = 0
    ) -> tuple[str, Mapping[str, Any]]:
        """Reset for every criterion but E4, which tells what `reset` does wrong."""
        try:
            prompt, info = env.reset(seed=seed, options=dict(options))
        except (Exception, SystemExit) as error:
            raise NotApplicable("reset() raises (E4)") from error
        if not isinstance(prompt, str) or not isinstance(info, Mapping):
            raise NotApplicable("reset() does not return a text and a dict (E4)")
        return prompt, info

    def step(self, env: gymnasium.Env[Any, Any], turn: str) -> Step:
        """Step for every criterion but E11 and E12, which tell what `step` does wrong."""
        try:
            step = Step(*env.step(turn))
        except (Exception, SystemExit) as error:
            raise NotApplicable("step() raises, or returns no five values (E11, E12)") from error
        if not isinstance(step.info, Mapping):
            raise NotApplicable("step() does not return a dict as its info (E12)")
        return step

    def play(
        self, env: gymnasium.Env[Any, Any], options: Mapping[str, Any], turns: Sequence[str]
    ) -> Played:
        """Play turns until they or the episode are at their end."""
        prompt, info = self.begin(env, options)
        steps: list[Step] = []
        for turn in turns:
            steps.append(self.step(env, turn))
            if steps[-1].is_last:
                break
        return Played(prompt, info, tuple(turns[: len(steps)]), tuple(steps))

    # Which tasks, which turns.

    def splits(self, env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
        """The splits that the environment lists in `splits`, or those that programs ask for."""
        listed = getattr(env.unwrapped, "splits", None)
        if isinstance(listed, tuple | list) and listed and all(isinstance(s, str) for s in listed):
            return tuple(listed)
        return SPLITS

    def count(self, env: gymnasium.Env[Any, Any], split: str) -> int:
        """How many tasks a split has; 0 if it does not say (which E9 tells)."""
        try:
            count = env.get_wrapper_attr("num_tasks")(split)
        except (Exception, SystemExit):
            return 0
        return count if isinstance(count, int) and not isinstance(count, bool) else 0

    def probes(self, env: gymnasium.Env[Any, Any]) -> tuple[dict[str, Any], ...]:
        """Reset options of the tasks that are looked at: first, middle and last of each split."""
        found = []
        for split in self.splits(env):
            count = self.count(env, split)
            indices = sorted({0, count // 2, count - 1}) if count > 0 else []
            found += [{"split": split, "index": index} for index in indices]
        if not found:
            raise NotApplicable("it does not say how many tasks its splits have (E9)")
        return tuple(found)

    def turns(
        self, env: gymnasium.Env[Any, Any], options: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], ...]:
        """Dialogues to play on a task: searching, answering, rambling, and its expert's own."""
        prompt, info = self.begin(env, options)
        task = info.get("task")
        question = task.question if isinstance(task, Task) else prompt
        say = partial(render, self.protocol, thought="I look this up.")
        searches = [
            say(Action(SEARCH, (query,))) for query in (str(question), str(prompt)[:200], MARK)
        ]
        answer = say(Action(ANSWER, WRONG_ANSWER))
        own = self._sample_turns(env)
        dialogues: list[list[str | None]] = [
            [*searches, answer],
            ["not a turn at all", *own[:3], answer],
            [answer],
            [*own],
        ]
        if self.entry.script_names:
            dialogues.append([*self.replay_expert(env, options)])
        kept = [tuple(turn for turn in dialogue if turn is not None) for dialogue in dialogues]
        return tuple(dialogue for dialogue in kept if dialogue)

    def _sample_turns(self, env: gymnasium.Env[Any, Any]) -> list[str]:
        """Turns that the environment's own action space gives as examples."""
        try:
            env.action_space.seed(0)
            samples = [env.action_space.sample() for _ in range(6)]
        except (Exception, SystemExit):  # E3 tells
            return []
        return [sample for sample in samples if isinstance(sample, str)]

    def replay_expert(
        self, env: gymnasium.Env[Any, Any], options: Mapping[str, Any], max_turns: int = 100
    ) -> tuple[str, ...]:
        """The turns of its expert, or of its first script; as many as there are until it fails."""
        turns: list[str] = []
        observation, info = self.begin(env, options)
        try:
            script = self.entry.load_script(self.entry.script_names[0])
            expert = script(env.unwrapped, info.get("task"), self.protocol)  # type: ignore[arg-type]
            while len(turns) < max_turns:
                turn = expert.act(observation)
                if not isinstance(turn, str):
                    break
                turns.append(turn)
                step = self.step(env, turn)
                if step.is_last:
                    break
                observation = step.observation
        except (Exception, SystemExit):
            return tuple(turns)
        return tuple(turns)


def find_own(env: object, *names: str) -> object:
    """Where to look: the first of these methods that is not inherited from us, else the class."""
    target = getattr(env, "unwrapped", env)
    for name in names:
        method = getattr(type(target), name, None)
        module = getattr(method, "__module__", "") or ""
        if method is not None and module.partition(".")[0] not in ("searchrl", "gymnasium"):
            return method
    return type(target)


def facts_of(info: Mapping[str, Any]) -> bytes:
    """What `info['task']` says, for comparing; what pickle cannot carry (E18) is left out."""
    task = info.get("task")
    if not isinstance(task, Task):
        return repr(task).encode()
    named = (task.id, task.split, task.index, task.question, task.answers, task.gold_ids, task.kind)
    try:
        return repr(named).encode() + pickle.dumps(task.meta)
    except Exception:
        return repr(named).encode()
