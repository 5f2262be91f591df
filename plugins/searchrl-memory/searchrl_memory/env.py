"""The wrapper `memory`: calls of `remember`, `recall` and `procedure` are answered, not passed on.

Owns which texts an episode may find, and what a call costs. All text that is shown goes through the
protocol, which takes the tags out of it; the engine takes control tokens out of every observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, Literal, TypeVar

import gymnasium
from pydantic import Field

from searchrl import ConfigError
from searchrl.contracts import Passage, RetrieverFactory, Task, TokenBudget, ToolCall
from searchrl.retrieval import BM25Retriever, IndexCache
from searchrl_memory.notes import Note, NoteFile
from searchrl_memory.procedures import Procedure, find, find_procedures, load_procedures

Span = Literal["none", "episode", "run"]
Ablation = Literal["none", "empty", "shuffled"]
AtLeastOne = Annotated[int, Field(ge=1)]
T = TypeVar("T")

ARGUMENTS = {"remember": "text", "recall": "query", "procedure": "query"}
_DESCRIPTIONS = {
    "remember": "Keep a text for later.",
    "recall": "Find texts that were kept with remember, in this task or in an earlier one.",
    "procedure": "Find the procedure for a situation.",
}


class MemoryEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives the policy of `env` a memory, and procedures.

    Args:
        env: the environment.
        span: how long a text is kept: for its `episode`, or over the episodes of a `run`, in
            `file`. `none`: there are procedures alone.
        file: the file of `span: run`. Tasks of the split `train` add to it, others only read it.
        sops: a folder of procedures.
        offer: the policy asks for a procedure with a `tool`, or the one that fits the question
            stands at the `start`, in the prompt.
        retriever: what finds texts and procedures; bm25 without it.
        k: texts that `recall` shows.
        max_calls: calls of an episode that take no turn of the environment; later ones are refused.
        ablation: `none`: neither tools nor procedures; `empty`: nothing is ever found; `shuffled`:
            as many texts or procedures as are found, but drawn without regard to the query.

    Raises:
        ConfigError: settings that do not go together, or a wrong file or folder.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        span: Span = "episode",
        file: str | None = None,
        sops: str | None = None,
        offer: Literal["tool", "start"] = "tool",
        retriever: RetrieverFactory | None = None,
        k: AtLeastOne = 3,
        max_calls: AtLeastOne = 4,
        ablation: Ablation | None = None,
    ) -> None:
        super().__init__(env)
        self._protocol = self._inner("protocol", None)
        if self._protocol is None:
            raise ConfigError("wrapper memory: this environment has no protocol that reads calls")
        if (span == "run") != (file is not None):
            raise ConfigError(
                f"wrapper memory: span = {span} and file = {file}: a memory of a run needs a file, "
                "and no other has one; --set wrapper.span=run --set wrapper.file=NAME.jsonl"
            )
        if span == "none" and sops is None:
            raise ConfigError(
                "wrapper memory: span = none without procedures leaves nothing; name a folder of "
                "them, --set wrapper.sops=FOLDER, or leave out the wrapper"
            )
        self._file = None if file is None else NoteFile(file)
        self._procedures = () if sops is None else load_procedures(sops)
        self._is_told_first = sops is not None and offer == "start" and ablation != "none"
        self._retriever = retriever or IndexCache(BM25Retriever)
        self._k, self._max_calls, self._ablation = k, max_calls, ablation
        self._num_calls = 0
        tools = self.tools(span=span, sops=sops, offer=offer, ablation=ablation)
        self._names = [tool["name"] for tool in tools]

    @staticmethod
    def tools(
        *,
        span: str = "episode",
        sops: str | None = None,
        offer: str = "tool",
        ablation: str | None = None,
        **_others: Any,
    ) -> list[dict[str, Any]]:
        """Return the tools that a policy gets under these settings."""
        names = ["remember", "recall"] if span != "none" else []
        names += ["procedure"] if sops and offer == "tool" else []
        return [_describe(name) for name in names if ablation != "none"]

    @property
    def max_turns(self) -> int | None:
        """Most turns of an episode: those of the environment, and calls besides."""
        limit: int | None = self._inner("max_turns", None)
        return limit and limit + self._max_calls * bool(self._names)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the environment, and one on episodes that share a memory."""
        notes = tuple(self._inner("notes", ()))
        if self._file is None:
            return notes
        return (
            *notes,
            f"its episodes share the {len(self._file.read())} notes of '{self._file.path}' and "
            "those that they add, so they are not independent: an interval over tasks is one of "
            "this memory alone. Compare over seeds, each with a file of its own",
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; it may find what the file holds now, and what it keeps itself."""
        prompt, info = self.env.reset(seed=seed, options=options)
        task = info.get("task") or Task("", (options or {}).get("split", ""), 0, prompt)
        self._task: Task = task
        self._num_calls = 0
        self._counts = {"remembered": 0, "recalled": 0, "procedures": 0}
        self._kept = [note.text for note in self._file.read()] if self._file else []
        if self._is_told_first and (found := self._find_procedure(task.question)):
            prompt = f"{prompt}\n\n{self._protocol.neutralise(str(found))}"
        return prompt, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Answer a call of ours; pass any other turn on, and calls that are too many."""
        parsed = self._protocol.parse(action)
        call = parsed.payload
        is_ours = isinstance(call, ToolCall) and call.name in self._names
        self._num_calls += is_ours
        if not is_ours or self._num_calls > self._max_calls:
            observation, reward, terminated, truncated, info = self.env.step(action)
            if is_ours and observation:
                observation = self._say("Your memory takes no more calls in this task.")
        else:
            observation, passages = self._answer(call)
            reward, terminated, truncated = 0.0, False, False
            info = {"action": parsed, "passages": passages}
        info = info | {"signals": {**info.get("signals", {}), **self._counts}}
        return observation, reward, terminated, truncated, info

    def _answer(self, call: ToolCall) -> tuple[str, tuple[Passage, ...]]:
        argument = ARGUMENTS[call.name]
        words = call.arguments.get(argument)
        if len(call.arguments) != 1 or not isinstance(words, str) or not words.strip():
            return self._say(f'{call.name} takes {{"{argument}": "..."}}, a text.'), ()
        if call.name == "procedure":
            found = self._find_procedure(words)
            return self._say(str(found) if found else "No procedure fits."), ()
        if call.name == "remember":
            self._keep(words)
            return self._say("Kept."), ()
        passages = tuple(self._recall(words))
        return self._protocol.render_observation(passages, self._budget()), passages

    def _keep(self, text: str) -> None:
        if self._file is not None and self._task.split == "train":
            self._file.add(Note(text=text, task=self._task.id))
        self._kept.append(text)
        self._counts["remembered"] += 1

    def _recall(self, query: str) -> list[Passage]:
        passages = [Passage(f"note-{n}", text) for n, text in enumerate(self._kept, 1)]
        shown = self._shown(passages, find(passages, self._retriever, query, self._k))
        self._counts["recalled"] += len(shown)
        return shown

    def _find_procedure(self, words: str) -> Procedure | None:
        found = find_procedures(self._procedures, self._retriever, words, 1)
        shown = self._shown(self._procedures, found)
        self._counts["procedures"] += len(shown)
        return shown[0] if shown else None

    def _shown(self, things: Sequence[T], found: list[T]) -> list[T]:
        """The things that were found, or those that an ablation shows in their place."""
        if self._ablation == "empty":
            return []
        if self._ablation == "shuffled":
            draw = Random(f"memory/{self._task.id}/{self._num_calls}")
            return draw.sample(things, len(found))
        return found

    def _say(self, text: str) -> str:
        return str(self._protocol.render_notice(text, self._budget()))

    def _budget(self) -> TokenBudget | None:
        budget: TokenBudget | None = self._inner("budget", None)
        return budget

    def _inner(self, name: str, default: Any) -> Any:
        """An attribute of the environment, if it has that."""
        return self.env.get_wrapper_attr(name) if self.env.has_wrapper_attr(name) else default


def _describe(name: str) -> dict[str, Any]:
    argument = ARGUMENTS[name]
    return {
        "name": name,
        "description": _DESCRIPTIONS[name],
        "parameters": {
            "type": "object",
            "properties": {argument: {"type": "string"}},
            "required": [argument],
        },
    }
