"""Question rows: every shape we read, and every reason we refuse one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl.contracts.problems import find_slice_problem
from searchrl.core.episode import Task
from searchrl.data.cells import (
    is_numbers,
    read_id,
    read_object,
    read_text,
    read_texts,
    refuse,
    unpack,
)
from searchrl.data.evidence import Paragraph, read_evidence
from searchrl.data.problems import BadRow, Row, ensure_encodable
from searchrl.errors import show_value

QUESTION_SHAPES = (
    '{"id", "question", "answer"}, {"question", "golden_answers"} or a Search-R1 / verl row '
    '{"prompt", "reward_model": {"ground_truth": {"target"}}}'
)
_ANSWER_KEYS = ("golden_answers", "answers", "answer", "gold")
VERDICTS = {"yes", "no", "noanswer", "no answer"}
"""Answers that are no text of a passage."""
_ANSWER_SPLIT = "<|answer_split|>"  # between the answers of one text, in files of DeepResearcher


@dataclass(frozen=True, slots=True)
class Question:
    """A question of any row shape. `path` and `line` say where the row is.

    `evidence` is what the row says of its gold passages without their ids. `split` may be "": open.
    `queries` and `bridge` are for the scripted policies of a handbook.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    gold_ids: tuple[str, ...] = ()
    kind: str = "question"
    path: str = ""
    line: int = 0
    queries: tuple[str, ...] = ()
    bridge: str = ""
    slices: tuple[str, ...] = ()
    difficulty: str = ""
    evidence: tuple[Paragraph, ...] = ()
    split: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The answers that a passage could hold."""
        return tuple(one for one in self.answers if one.casefold() not in VERDICTS)

    def as_task(self, env: str, split: str, index: int, **meta: Any) -> Task:
        """The question as task `index` of a split of `env`."""
        names = ("id", "question", "answers", "kind", "gold_ids", "slices", "difficulty")
        facts = {name: getattr(self, name) for name in names}
        return Task(split=split, index=index, env=env, meta=meta, **facts)


def parse_question(row: Row, path: Path, name: str, split: str = "") -> Question:
    """The question of a row of any shape; `BadRow` says what is missing or of the wrong kind.

    Without an id, it is `name` and the row's number. One with gold passages needs no answer. Ids of
    verl are counted in each `data_source`, whose name stands before them.
    """
    value = row.value
    identity, source = read_id(value), value.get("data_source")
    if identity is not None and isinstance(source, str) and source:
        identity = f"{source}/{identity}"
    kind = read_text("type", _read_fact(value, "type") or "question", "a name")
    gold_ids = read_texts(value, "supporting_ids", "a list of passage ids", ";")
    slices = read_texts(value, "slices", "a list of names", ";")
    for one in slices:
        if problem := find_slice_problem(one, kind):
            raise BadRow(f"'slices' holds {problem}")
    level = _read_fact(value, "level")  # HotpotQA's; another data set may mean something else by it
    if (difficulty := value.get("difficulty")) is None:
        difficulty = level if isinstance(level, str) else ""
    difficulty = read_text("difficulty", difficulty, "a name or a number").strip()
    if str(value.get("answerable")).strip().lower() in ("false", "0", "0.0"):
        raise BadRow("is not answerable; leave such rows out (MuSiQue: musique_ans_*.jsonl)")
    evidence = () if gold_ids else read_evidence(value)
    has_gold = bool(gold_ids) or any(one.is_gold for one in evidence)
    return Question(
        id=identity if identity is not None else f"{name}-{row.number}",
        question=_read_question_text(value),
        answers=_read_answers(value, may_lack=has_gold),
        gold_ids=tuple(dict.fromkeys(gold_ids)),
        kind=kind,
        path=str(path),
        line=row.number,
        slices=tuple(dict.fromkeys(slices)),
        difficulty=re.sub(r"[^\w.-]+", "_", difficulty, flags=re.ASCII),
        evidence=evidence,
        split=split,
    )


def _read_fact(value: Mapping[str, Any], key: str) -> Any:
    """The value of a key, or of that key under `metadata`, where FlashRAG and BEIR keep it."""
    fact = value.get(key)
    return read_object(value, "metadata").get(key) if fact is None else fact


def _read_question_text(value: Mapping[str, Any]) -> str:
    extra = read_object(value, "extra_info")
    holders = {"question": value, "query": value, "extra_info.question": extra, "prompt": value}
    for key, holder in holders.items():
        if (text := holder.get(key.rpartition(".")[2])) is None:
            continue
        if key == "prompt" and isinstance(chat := unpack(text), list):
            messages = [one for one in chat if isinstance(one, Mapping)]
            users = [one for one in messages if one.get("role", "user") == "user"]
            text = users[-1].get("content") if users and messages == chat else chat
        if not isinstance(text, str):
            raise refuse(key, "text", text)
        if key == "prompt":  # of Search-R1
            text = text.rpartition("Question:")[2]
        if not text.strip():
            raise BadRow(f"'{key}' is empty")
        return ensure_encodable(key, text.strip())
    raise BadRow(f"has no 'question', only {_show_keys(value)}; expected {QUESTION_SHAPES}")


def _read_answers(value: Mapping[str, Any], *, may_lack: bool) -> tuple[str, ...]:
    facts = {key: _read_fact(value, key) for key in _ANSWER_KEYS}
    facts["reward_model.ground_truth"] = read_object(value, "reward_model").get("ground_truth")
    for key, answers in facts.items():
        if answers is not None and not (may_lack and answers == []):
            aliases = _read_fact(value, "answer_aliases")  # MuSiQue
            more = _flatten_answers("answer_aliases", aliases) if aliases else ()
            return tuple(dict.fromkeys((*_flatten_answers(key, answers), *more)))
    if may_lack:
        return ()
    keys = ", ".join(f"'{key}'" for key in facts)
    raise BadRow(f"has no answer, only {_show_keys(value)}; expected one of {keys}")


def _show_keys(value: Mapping[str, Any]) -> str:
    return show_value([key for key, fact in value.items() if fact is not None])


def _flatten_answers(key: str, answers: Any) -> tuple[str, ...]:
    """The answers of a text, a number, a list of these, or `{"target": …}` around any of them."""
    read = unpack(answers)
    if isinstance(read, Mapping) and not (isinstance(answers, str) and "target" not in read):
        if "target" not in read:
            raise BadRow(f"'{key}' is an object without 'target': {show_value(answers)}")
        return _flatten_answers(f"{key}.target", read["target"])
    items = read if isinstance(read, list) else [answers]
    if not items:
        raise BadRow(f"'{key}' is an empty list; a question needs at least one answer")
    if isinstance(answers, str) and is_numbers(items):
        told = f"may be one answer or several; write a list of texts: {json.dumps([answers])}"
        raise BadRow(f"'{key}' is {show_value(answers)}, which {told}")
    texts = [read_text(key, item, "text or a list of texts") for item in items]
    parts = [part.strip() for text in texts for part in text.split(_ANSWER_SPLIT)]
    if not all(parts):
        raise BadRow(f"'{key}' holds an empty answer")
    return tuple(ensure_encodable(key, answer) for answer in parts)
