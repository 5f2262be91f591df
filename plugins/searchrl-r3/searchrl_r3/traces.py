"""Traces from questions: episodes of steps that are worth imitating, as rows for `searchrl sft`.

Three writers: `oracle` knows the gold passages and says so in its row; `policy` and `endpoint` are
models that sample. Kept is what answers right, is well-formed throughout, shows every gold passage
and is not there yet. Only training tasks are played; one whose gold passage the test split
has, too, is left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from searchrl import ConfigError, evaluate, make_env
from searchrl.contracts import (
    ANSWER,
    INVALID,
    SEARCH,
    Action,
    Episode,
    Passage,
    TagProtocol,
    Task,
)
from searchrl.envs import Shown, names_in
from searchrl.testing import play_episode

WRITERS = ("oracle", "policy", "endpoint")
_MAX_QUOTE = 160
"""Characters of what an oracle quotes of a passage."""


class Written(NamedTuple):
    """One episode as it was played: turns with what was shown after each."""

    task: Task
    prompt: str
    turns: tuple[tuple[str, str], ...]
    fault: str
    """Why it is not worth imitating; empty: it is."""


class Yield(NamedTuple):
    """Episodes of one number of hops: played, kept, and faults of the others."""

    hops: int
    played: int
    kept: int
    faults: Counter[str]


class Oracle:
    """Writes the steps of somebody who knows the gold passages and the answer.

    It looks for one passage after the other by its title or, where the last one names it, by that
    name, and says in each analysis what was found and what is missing.
    """

    def __init__(self, env: Any, task: Task, protocol: TagProtocol) -> None:
        self._env, self._task, self._shown = env.unwrapped, task, Shown()
        self._protocol = protocol
        self._gold: list[Passage] = list(self._env.gold_passages(task))
        queries = task.meta.get("queries", ())
        self._queries = dict(zip((one.id for one in self._gold), queries, strict=False))
        self._asked: set[str] = set()

    def act(self, observation: str) -> str:
        """The next step; passages are read from the environment."""
        self._shown.add(self._env.last_passages)
        known = [p for p in self._gold if self._has(p)]
        missing = [p for p in self._gold if not self._has(p)]
        new = {passage.id for passage in self._env.last_passages}
        notes = [f"{one.title} says: {_short(one.text)}" for one in known if one.id in new]
        if not notes and self._asked:
            notes = ["No document says it."]
        query = next((q for q in self._tries(known, missing) if q not in self._asked), "")
        if not query:
            notes.append("What is missing cannot be found." if missing else "Nothing is missing.")
            answer = self._shown.gold_answer(self._task)
            return self._protocol.render_turn(Action(ANSWER, answer), " ".join(notes))
        self._asked.add(query)
        notes.append(f"What is missing: {query}.")
        return self._protocol.render_turn(Action(SEARCH, (query,)), " ".join(notes))

    def _has(self, passage: Passage) -> bool:
        return self._shown.has_all([passage.id])

    def _tries(self, known: list[Passage], missing: list[Passage]) -> list[str]:
        """Queries of the task; else a name that was read, if the passage is about it; its title."""
        if not missing:
            return []
        wanted = missing[0]
        if wanted.id in self._queries:
            return list(self._queries[wanted.id])
        read = [name for one in known for name in names_in(one.text)]
        about = [*read, *names_in(self._task.question)]
        return [*(n for n in about if n.casefold() in wanted.title.casefold()), wanted.title]


def build(
    env: Mapping[str, Any],
    writer: str,
    num_tasks: int,
    *,
    protocol: Mapping[str, Any],
    config: Mapping[str, Any] | None = None,
    plugins: Sequence[str] = (),
) -> list[Written]:
    """Play the first training tasks with a writer; `env` and `protocol` are as in a run.

    `config` has further settings of `searchrl.evaluate` for a model that writes.
    """
    if writer not in WRITERS:
        raise ConfigError(f"there is no writer '{writer}'; expected one of {', '.join(WRITERS)}")
    settings = {key: value for key, value in env.items() if key != "name"}
    made: Any = make_env(str(env["name"]), protocol=protocol, plugins=plugins, **settings).unwrapped
    held = _of_test(made)
    total = min(num_tasks, made.num_tasks("train"))
    if writer == "oracle":
        if not hasattr(made, "gold_passages"):
            raise ConfigError(
                f"env '{env['name']}' does not tell its gold passages, which the writer 'oracle' "
                "needs; take --writer policy or endpoint"
            )
        played = _play_oracle(made, total)
    else:
        extra = {"plugins": [*plugins], **(config or {})}
        played = _play_model(made, env, total, protocol, extra)
    written, seen = [], set[tuple[str, ...]]()
    for one in played:
        key = tuple(" ".join(text.split()) for text, _ in one.turns)
        fault = one.fault
        if held & set(one.task.gold_ids):
            fault = "a gold passage of it is in the test split"
        elif not fault and key in seen:
            fault = "written before"
        seen.add(key)
        written.append(one._replace(fault=fault))
    return written


def rows_of(written: Iterable[Written], writer: str) -> Iterator[dict[str, Any]]:
    """The rows of those that are kept, as `searchrl sft --traces` reads them."""
    source = "oracle: it knows the gold passages and the answer" if writer == "oracle" else writer
    for one in written:
        if not one.fault:
            turns = [{"text": text, "observation": shown} for text, shown in one.turns]
            row = {"id": one.task.id, "writer": source, "hops": max(1, len(one.task.gold_ids))}
            yield {**row, "prompt": one.prompt, "turns": turns}


def yields(written: Iterable[Written]) -> list[Yield]:
    """The yield of each number of gold passages."""
    faults: dict[int, list[str]] = {}
    for one in written:
        faults.setdefault(max(1, len(one.task.gold_ids)), []).append(one.fault)
    return [
        Yield(hops, len(every), every.count(""), Counter(filter(None, every)))
        for hops, every in sorted(faults.items())
    ]


def _of_test(env: Any) -> frozenset[str]:
    """The gold passages of the test split, as far as corpora are shared.

    A question that is in both splits is refused by the environment.
    """
    count = env.num_tasks("test") if "test" in env.splits else 0
    tasks = [env.make_task("test", index) for index in range(count)]
    # Where every task has a corpus of its own, ids of passages mean nothing across tasks.
    is_shared = bool(env.known_corpora())
    return frozenset(name for task in tasks for name in task.gold_ids if is_shared)


def _play_oracle(env: Any, total: int) -> Iterator[Written]:
    for index in range(total):
        task: Task = env.make_task("train", index)
        if not task.gold_ids:
            yield Written(task, "", (), "the question names no gold passages")
            continue
        oracle = Oracle(env, task, env.protocol)
        episode = play_episode(env, oracle, env.protocol, split="train", index=index)
        numbered = tuple(
            replace(turn, text=env.protocol.number_turn(turn.text, number))
            for number, turn in enumerate(episode.turns, 1)
        )
        is_right = bool(numbered) and numbered[-1].reward == 1.0
        yield _judge(env, replace(episode, turns=numbered), is_right)


def _play_model(
    env: Any, entry: Mapping[str, Any], total: int, protocol: Any, config: Mapping[str, Any]
) -> Iterator[Written]:
    result = evaluate(
        {
            "env": dict(entry),
            "protocol": dict(protocol),
            "reward": "em",
            **config,
            "eval": {"temperature": 1.0, **config.get("eval", {}), "split": "train",
                     "num_tasks": total, "forced": False},
        }
    )  # fmt: skip
    for rollout in result.rollouts:
        yield _judge(env, rollout.episode, rollout.scored.scores.get("em") == 1)


def _judge(env: Any, episode: Episode, is_right: bool) -> Written:
    """The episode, with the first reason not to imitate it."""
    task, actions = episode.task, [turn.action.kind for turn in episode.turns]
    prompt, _ = env.reset(options={"split": "train", "index": task.index})
    faults = {
        "a step is malformed": INVALID in actions,
        "no answer": actions[-1:] != [ANSWER],
        "a wrong answer": not is_right,
        "answered without a gold passage": not {*task.gold_ids} <= {p.id for p in episode.passages},
    }
    turns = tuple((turn.text, turn.observation) for turn in episode.turns)
    return Written(task, prompt, turns, next((one for one in faults if faults[one]), ""))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_QUOTE else f"{line[:_MAX_QUOTE].rpartition(' ')[0]} …"
