"""Question rows: every shape we read, and every reason we refuse one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl.contracts.problems import find_slice_problem
from searchrl.core.episode import Task
from searchrl.data.evidence import Paragraph, read_evidence
from searchrl.data.problems import BadRow, Row, ensure_encodable
from searchrl.errors import show_value

QUESTION_SHAPES = (
    '{"id", "question", "answer"}, {"question", "golden_answers"} or a Search-R1 / verl row '
    '{"prompt", "reward_model": {"ground_truth": {"target"}}}'
)
_ANSWER_KEYS = ("golden_answers", "answers", "answer", "gold")
_ANSWER_SPLIT = "<|answer_split|>"
"""What stands between the answers of one text in the files of DeepResearcher."""


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

    def as_task(self, env: str, split: str, index: int, **meta: Any) -> Task:
        """The question as task `index` of a split of `env`."""
        names = ("id", "question", "answers", "kind", "gold_ids", "slices", "difficulty")
        own = {name: getattr(self, name) for name in names}
        return Task(split=split, index=index, env=env, meta=meta, **own)


def parse_question(row: Row, path: Path, name: str, split: str = "") -> Question:
    """The question of a row of any shape; `BadRow` says what is missing or of the wrong kind.

    Without an id, it is `name` and the row's number. One with gold passages needs no answer.
    """
    value = row.value
    identity = read_id(value)
    kind = str(_read_fact(value, "type") or "question")
    ids, slices = value.get("supporting_ids"), value.get("slices")
    if not (ids is None or _is_list_of(ids, str | int)):
        raise BadRow(f"'supporting_ids' must be a list of passage ids, got {show_value(ids)}")
    gold_ids = tuple(dict.fromkeys(map(str, ids or ())))
    if not (slices is None or _is_list_of(slices, str)):
        raise BadRow(f"'slices' must be a list of names, got {show_value(slices)}")
    for one in slices or ():
        if problem := find_slice_problem(one, kind):
            raise BadRow(f"'slices' holds {problem}")
    level = _read_fact(value, "level")  # HotpotQA's; another data set may mean something else by it
    difficulty = value.get("difficulty", level if isinstance(level, str) else None)
    if not isinstance(difficulty, str | int | None) or isinstance(difficulty, bool):
        raise BadRow(f"'difficulty' must be a name or a number, got {show_value(difficulty)}")
    level = "" if difficulty is None else str(difficulty).strip()
    if value.get("answerable") is False:
        raise BadRow("is not answerable; leave such rows out (MuSiQue: musique_ans_*.jsonl)")
    evidence = () if gold_ids else read_evidence(value)
    has_gold = bool(gold_ids) or any(one.is_gold for one in evidence)
    return Question(
        id=identity if identity is not None else f"{name}-{row.number}",
        question=_read_question_text(value),
        answers=_read_answers(value, may_lack=has_gold),
        gold_ids=gold_ids,
        kind=kind,
        path=str(path),
        line=row.number,
        slices=tuple(dict.fromkeys(slices or ())),
        difficulty=re.sub(r"[^\w.-]+", "_", level, flags=re.ASCII),
        evidence=evidence,
        split=split,
    )


def read_id(value: Mapping[str, Any]) -> str | None:
    """The id of a row, `id` or `_id`; None if it has none. Raises `BadRow` for a wrong one."""
    key = "_id" if value.get("id") is None else "id"
    identity = value.get(key)
    if identity is None:
        return None
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        raise BadRow(f"'{key}' must be text or a whole number, got {show_value(identity)}")
    if not str(identity).strip():
        raise BadRow(f"'{key}' is empty")
    return ensure_encodable(key, str(identity))


def _read_fact(value: Mapping[str, Any], key: str) -> Any:
    """The value of a key, or of that key under `metadata`, where FlashRAG and BEIR keep it."""
    metadata = value.get("metadata")
    found = value.get(key)
    return metadata.get(key) if found is None and isinstance(metadata, Mapping) else found


def _is_list_of(value: Any, kind: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(one, kind) and not isinstance(one, bool) for one in value
    )


def _read_question_text(value: Mapping[str, Any]) -> str:
    extra = value.get("extra_info")
    holders = {"question": value, "query": value, "extra_info.question": extra, "prompt": value}
    for key, holder in holders.items():
        text = holder.get(key.rpartition(".")[2]) if isinstance(holder, Mapping) else None
        if text is None:
            continue
        if key == "prompt" and _is_list_of(text, Mapping):
            asked = [one for one in text if one.get("role", "user") == "user"]
            text = asked[-1].get("content") if asked else None
        if not isinstance(text, str):
            raise BadRow(f"'{key}' must be text, got {show_value(text)}")
        if key == "prompt":  # of Search-R1
            text = text.rpartition("Question:")[2]
        if not text.strip():
            raise BadRow(f"'{key}' is empty")
        return ensure_encodable(key, text.strip())
    raise BadRow(f"has no 'question', only {_show_keys(value)}; expected {QUESTION_SHAPES}")


def _read_answers(value: Mapping[str, Any], *, may_lack: bool) -> tuple[str, ...]:
    said = {key: _read_fact(value, key) for key in _ANSWER_KEYS}
    reward_model = value.get("reward_model")
    if isinstance(reward_model, Mapping):
        said["reward_model.ground_truth"] = reward_model.get("ground_truth")
    for key, answers in said.items():
        if answers is not None and not (may_lack and answers == []):
            aliases = _read_fact(value, "answer_aliases")  # MuSiQue
            found = _flatten_answers(key, answers)
            more = _flatten_answers("answer_aliases", aliases) if aliases else ()
            return tuple(dict.fromkeys((*found, *more)))
    if may_lack:
        return ()
    keys = ", ".join(f"'{key}'" for key in (*_ANSWER_KEYS, "reward_model.ground_truth"))
    raise BadRow(f"has no answer, only {_show_keys(value)}; expected one of {keys}")


def _show_keys(value: Mapping[str, Any]) -> str:
    return show_value([key for key, said in value.items() if said is not None])


def _flatten_answers(key: str, answers: Any) -> tuple[str, ...]:
    """The answers of a text, a number, a list of these, or `{"target": …}` around any of them."""
    if isinstance(answers, Mapping):
        if "target" not in answers:
            raise BadRow(f"'{key}' is an object without 'target': {show_value(answers)}")
        key, answers = f"{key}.target", answers["target"]
    items = answers if isinstance(answers, list | tuple) else [answers]
    if not items:
        raise BadRow(f"'{key}' is an empty list; a question needs at least one answer")
    if not _is_list_of(items, str | int | float):
        raise BadRow(f"'{key}' must be text or a list of texts, got {show_value(answers)}")
    found = [part.strip() for item in items for part in str(item).split(_ANSWER_SPLIT)]
    if not all(found):
        raise BadRow(f"'{key}' holds an empty answer")
    return tuple(ensure_encodable(key, answer) for answer in found)
