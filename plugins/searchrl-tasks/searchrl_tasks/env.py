"""The environment `examples`: a recorded conversation per episode, up to its next answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from searchrl import ConfigError
from searchrl.contracts import ANSWER, TOOL, Action, TagProtocol, Task, ToolCall
from searchrl.data import Problems, Row, parse_rows
from searchrl.envs import TurnEnv
from searchrl_tasks.calls import read_call
from searchrl_tasks.made import make_rows
from searchrl_tasks.rows import KINDS, SHAPES, Example, parse_example, split_examples

AS_JSON = 'Answer with one call as JSON: {"name": ..., "arguments": {...}}'
"""The end of a prompt where the protocol has no calls of tools."""


class Examples(TurnEnv):
    """Answer as was recorded; or call as was recorded, read what came of it, and answer.

    Args:
        questions: a file of rows, or several; None: made-up ones.
        kinds: which kinds of task to ask.
        max_turns: model turns before the episode is truncated.
        world_seed: which made-up rows.

    Raises:
        DataError: for rows that cannot be read, with their numbers.
        ConfigError: if there is no task to train on.
    """

    name = "examples"

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        retriever: Any = None,
        questions: str | Sequence[str] | None = None,
        kinds: Sequence[str] = KINDS,
        max_turns: int = 4,
        world_seed: int = 0,
    ) -> None:
        if unknown := [kind for kind in kinds if kind not in KINDS]:
            raise ConfigError(f"env.kinds: {unknown[0]!r} is none of {', '.join(KINDS)}")
        super().__init__(protocol, max_turns)
        paths = (questions,) if isinstance(questions, str) else tuple(questions or ())
        every = _load(paths, world_seed)
        self._examples = {
            name: [one for one in part if one.kind in kinds] for name, part in every.items()
        }
        self.splits = tuple(name for name, part in self._examples.items() if part)
        if "train" not in self.splits:
            raise ConfigError(
                f"env examples: no task of the kinds {list(kinds)} in {questions or 'made-up rows'}"
            )
        try:
            protocol.render_turn(Action(TOOL, ToolCall("look", {})))
            self.has_calls = True
        except ValueError:
            self.has_calls = False
        self._example = self._examples["train"][0]
        self._is_called = False

    def num_tasks(self, split: str) -> int:
        """The number of examples of a split."""
        return len(self._examples[self.ensure_split(split)])

    def make_task(self, split: str, index: int) -> Task:
        """Example `index` of a split. A call is its answer where the protocol has no calls."""
        one = self._examples[split][index]
        answer, meta = one.answer, dict[str, Any]()
        if one.call is not None:
            meta = {"call": one.call, "tools": one.tools}
            if not self.has_calls or not answer:
                answer = json.dumps({"name": one.call.name, "arguments": one.call.arguments})
        return Task(
            id=f"examples-{one.id}",
            split=split,
            index=index,
            question=one.question,
            answers=(self.protocol.neutralise(answer),),
            kind=one.kind,
            env="examples",
            meta=meta,
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Ask the example of `options` (`split`, `index`)."""
        super().reset(seed=seed)
        split, index = self.choose(options or {})
        self._example, self._is_called = self._examples[split][index], False
        as_json = f"\n{AS_JSON}" if self._example.call and not self.has_calls else ""
        return self.begin(self.make_task(split, index), self._example.prompt + as_json)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take an answer, or a call: the recorded one brings the recorded response."""
        task, parsed, example = self.begin_turn(), self.protocol.parse(action), self._example
        reward, notice = 0.0, ""
        is_over = parsed.kind == ANSWER
        if is_over:
            reward = float(self._is_right(str(parsed.payload), task))
        else:
            text = parsed.reason or f"There is no action '{parsed.kind}' here."
            if parsed.kind == TOOL and parsed.payload == example.call:
                self._is_called, text = True, example.response or "Done."
            elif parsed.kind == TOOL:
                names = ", ".join(tool["name"] for tool in example.tools) or "none"
                text = f"Nothing is known of this call. Functions: {names}."
            notice = self.protocol.render_notice(text, self.budget)
        is_cut = self.end_turn(action, notice, is_over)
        return notice, reward, is_over, is_cut, {"task": task, "action": parsed}

    def _is_right(self, answer: str, task: Task) -> bool:
        """True if the recorded call was made, or the recorded answer given."""
        call = self._example.call
        if call is None:
            return answer.split() == task.answers[0].split()
        return self._is_called if self.has_calls else read_call(answer) == call


class Expert:
    """Calls and answers as was recorded."""

    def __init__(self, env: Any, task: Task, protocol: TagProtocol) -> None:
        examples: Examples = env.unwrapped
        call = task.meta.get("call")
        self.turns = [protocol.render_turn(Action(ANSWER, task.answers[0]), "I can answer.")]
        if call is not None and examples.has_calls:
            self.turns.insert(0, protocol.render_turn(Action(TOOL, call), "I need a function."))

    def act(self, observation: str) -> str:
        """The next recorded turn; the last one again and again."""
        return self.turns.pop(0) if self.turns[1:] else self.turns[0]


@lru_cache(maxsize=4)  # each rollout of a group makes its own environment
def _load(paths: Sequence[str], world_seed: int) -> Mapping[str, Sequence[Example]]:
    problems, examples = Problems(), list[Example]()
    for number, path in enumerate(map(Path, paths)):
        parse = partial(parse_example, name=f"{number}.{path.name.split('.')[0]}")
        rows = parse_rows(path.expanduser(), problems, parse, f"example; expected rows {SHAPES}")
        examples += rows
    problems.ensure_none()
    if not paths:
        examples = [parse_example(Row(*row), "made") for row in enumerate(make_rows(world_seed), 1)]
    return split_examples(examples)
