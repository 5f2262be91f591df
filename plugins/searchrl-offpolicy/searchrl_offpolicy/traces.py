"""Traces of others: rows of files, or episodes of runs, as questions and turns that answer them.

Owns the shapes. Whether a trace fits the run is decided by playing it (`demonstrations`).

    {"prompt": text, "turns": [{"text", "observation"}]}         SearchRL
    {"prompt": [{"role", "content"}], "target": [{…}]}           LUFFY (Openr1-Math-46k-8192)
    {"messages" or "conversations": [{"role", "content"}]}       chats
    {"question", "reasoning_content", "content"}                 DeepSeek-R1's API and its data sets
    {"prompt", "response": text or texts}                        with `</think>` in the response
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from searchrl import Run, show_value
from searchrl.contracts import ANSWER, Action, TagProtocol
from searchrl.data import BadRow, Problems, Row, parse_rows

SHAPES = "prompt and turns, prompt and target, messages, question and reasoning_content, response"
_QUESTION = ("question", "problem", "prompt", "query", "instruction")
_REASONING = ("reasoning_content", "reasoning", "thinking", "deepseek_thinking_trajectory")
_RESPONSE = ("response", "content", "completion", "output", "generations", "deepseek_attempt")
_BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_TEMPLATE = re.compile(r"<\|[^|<>\n]{1,40}\|>|<｜[^｜<>\n]{1,40}｜>|\[/?INST\]")
"""Marks around messages in the chat templates of Qwen, Llama, DeepSeek and Mistral."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Turns of an author; `observations` were shown after each, "" if unknown."""

    question: str
    turns: tuple[str, ...]
    observations: tuple[str, ...] = ()
    task_id: str = ""
    index: int | None = None
    """Index of the task, if an episode of a run says it."""

    @property
    def holds_template(self) -> bool:
        """True if tokens of a chat template are left in the text of its turns."""
        return any(_TEMPLATE.search(text) for text in self.turns)

    def questions(self) -> Iterator[str]:
        """Texts that may be the question: all of the prompt, and each of its lines."""
        text = _TEMPLATE.sub("\n", self.question).removesuffix("<think>\n")
        for one in (text, *text.splitlines()):
            yield key_of(re.sub(r"^\s*(Question|Query)\s*:", "", one))


def key_of(question: str) -> str:
    """A question without differences of case and white space."""
    return " ".join(question.split()).casefold()


def read_traces(source: str) -> Iterator[Trace]:
    """The traces of a file (JSON, JSONL, Parquet, packed or not) or of a run folder.

    Raises:
        DataError: a row has none of the shapes; all such rows are named.
        RunFolderError: the folder holds no run.
    """
    path = Path(source)
    if path.is_dir():
        for row in Run.open(path).rollouts():
            if row["task"]["split"] == "train" and row["turns"] and not row["failure"]:
                yield _of_episode(row)
        return
    problems = Problems()
    for traces in parse_rows(path, problems, _of_row, f"trace; expected rows with {SHAPES}"):
        yield from traces
    problems.ensure_none()


def written_by(trace: Trace, protocol: TagProtocol) -> Trace:
    """The trace in the protocol's form: reasoning and an answer become its one turn.

    A trace with an end of the protocol's turns stays as it is.
    """
    if len(trace.turns) != 1 or any(stop in trace.turns[0] for stop in protocol.stops):
        return trace
    before, mark, behind = trace.turns[0].rpartition("</think>")
    thought, answer = before.strip().removeprefix("<think>").strip(), behind.strip()
    if not mark or not answer or not thought:
        return trace
    boxed = _BOXED.findall(answer)
    action = Action(ANSWER, boxed[-1].strip() if boxed else answer)
    try:
        return replace(trace, turns=(protocol.render_turn(action, thought),))
    except ValueError:  # it has no answers
        return trace


def _of_episode(row: Mapping[str, Any]) -> Trace:
    turns = row["turns"]
    texts = tuple(turn["text"] for turn in turns)
    shown = tuple(turn["observation"] for turn in turns)
    task = row["task"]
    return Trace(task["question"], texts, shown, task["id"], task["index"])


def _of_row(row: Row) -> list[Trace]:
    value = row.value
    task_id = "" if value.get("id") is None else str(value["id"])
    chat = next((value[key] for key in ("messages", "conversations") if value.get(key)), None)
    if isinstance(turns := value.get("turns"), list):
        texts = tuple(_text(turn, "text", f"turn {n}") for n, turn in enumerate(turns))
        shown = tuple(str(turn.get("observation") or "") for turn in turns)
        traces = [(_question(value), texts, shown)]
    elif value.get("target") is not None:
        traces = [(_question(value), _messages(value["target"], "target")[1], ())]
    elif chat is not None:
        question, texts = _messages(chat, "messages")
        traces = [(question, texts, ())]
    else:
        traces = [(_question(value), (text,), ()) for text in _responses(value)]
    if not all(question.strip() and texts for question, texts, _ in traces):
        raise BadRow(f"needs a question and a turn that answers it; expected {SHAPES}")
    return [
        Trace(question, tuple(text.rstrip() for text in texts), shown, task_id)
        for question, texts, shown in traces
    ]


def _question(value: Mapping[str, Any]) -> str:
    found = next((value[key] for key in _QUESTION if value.get(key)), None)
    if isinstance(found, list):
        return _messages(found, "prompt")[0]
    if not isinstance(found, str):
        raise BadRow(f"no question in it; expected {SHAPES}")
    return found


def _responses(value: Mapping[str, Any]) -> list[str]:
    """The texts of a row that answers its question, each with its reasoning in front."""
    thought = next((value[key] for key in _REASONING if isinstance(value.get(key), str)), "")
    answers = next((value[key] for key in _RESPONSE if value.get(key)), value.get("answer"))
    if isinstance(answers, str):
        answers = [answers]
    if not isinstance(answers, list) or not all(isinstance(one, str) for one in answers):
        raise BadRow(f"no response in it; expected {SHAPES}")
    opened = f"<think>\n{thought.strip()}\n</think>\n" if thought else ""
    return [f"{opened}{answer}" for answer in answers]


def _messages(messages: Any, where: str) -> tuple[str, tuple[str, ...]]:
    """(the last user message, the turns of the assistant after it).

    Messages between turns are observations; the environment makes its own.
    """
    if not isinstance(messages, list):
        raise BadRow(f'expected "{where}" to be a list, got {show_value(messages)}')
    question, turns = "", list[str]()
    for n, message in enumerate(messages):
        is_shares = isinstance(message, Mapping) and "from" in message
        role = _text(message, "from" if is_shares else "role", f"{where} {n}")
        text = _text(message, "value" if is_shares else "content", f"{where} {n}")
        if role in ("assistant", "gpt"):
            thought = message.get("reasoning_content")
            turns.append(f"<think>\n{thought}\n</think>\n{text}" if thought else text)
        elif role in ("user", "human") and not turns:
            question = text
    return question, tuple(turns)


def _text(row: Any, key: str, where: str) -> str:
    value = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(value, str):
        raise BadRow(f'{where}: expected an object with the text "{key}", got {show_value(row)}')
    return value
