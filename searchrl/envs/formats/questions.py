"""Question rows: every shape we read, and every reason we refuse one.

Owns what the keys of a row mean, but for the evidence, which `evidence` reads. Files, formats and
lines are read by `rows`. Knows no environment and no corpus. Called by `dataset`, and by
`regulations.handbook_file` for the text and the answers of a question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from searchrl.contracts import find_slice_problem
from searchrl.core.episode import Task
from searchrl.envs.formats.evidence import NO_EVIDENCE, Evidence, read_evidence
from searchrl.envs.formats.problems import Problems
from searchrl.envs.formats.row import BadRow, Row, ensure_encodable, ensure_object
from searchrl.envs.formats.rows import parse_rows
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

    `evidence` is what the row says of its gold passages without their ids. `split` is the one that
    its data set puts it into; "" leaves that open. `answer_id` names the answer in a file
    of further names (`folders.read_aliases`). `queries` and `bridge` are for the scripted policies
    of a handbook; a corpus has none.
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
    evidence: Evidence = NO_EVIDENCE
    split: str = ""
    answer_id: str = ""

    def as_task(self, env: str, split: str, index: int, **meta: Any) -> Task:
        """The question as task `index` of a split of `env`."""
        return Task(
            id=self.id,
            split=split,
            index=index,
            question=self.question,
            answers=self.answers,
            kind=self.kind,
            gold_ids=self.gold_ids,
            env=env,
            meta=meta,
            slices=self.slices,
            difficulty=self.difficulty,
        )


def read_questions(
    path: Path,
    problems: Problems,
    name: str,
    places: dict[str, str],
    *,
    split: str = "",
    rows: Iterator[Row] | None = None,
) -> Iterator[Question]:
    """Yield the questions of one file. `places` holds the ids of other files, and gets these.

    A row without an id is named after `name` and its line (and its item, in a list on one line).
    `rows` are those of the file if they were read already.
    """
    parse = partial(parse_question, path=path, name=name, split=split)
    expected = f"question; expected rows {QUESTION_SHAPES}"
    return parse_rows(path, problems, parse, expected, places=places, rows=rows)


def parse_question(row: Row, path: Path, name: str, split: str = "") -> Question:
    """The question of a row of any shape. Without an id, its id is `name` and the line.

    A question that names gold passages needs no answer: there is something to be found.

    Raises:
        BadRow: something is missing or of the wrong kind; says what was expected.
    """
    value = ensure_object(row.value, f"such as {QUESTION_SHAPES}")
    identity = read_id(value)
    kind = str(_read_fact(value, "type") or "question")
    gold_ids = _read_gold_ids(value.get("supporting_ids"))
    evidence = NO_EVIDENCE if gold_ids else read_evidence(value)
    answer_id = _read_fact(value, "answer_id")  # null where an answer has one name
    if value.get("answerable") is False:
        raise BadRow(
            "is not answerable, so no answer is right; leave such rows out (MuSiQue has files "
            "without them, musique_ans_*.jsonl)"
        )
    return Question(
        id=identity if identity is not None else f"{name}-{row.number}",
        question=_read_question_text(value),
        answers=_read_answers(value, may_lack=bool(gold_ids or evidence.gold)),
        gold_ids=gold_ids,
        kind=kind,
        path=str(path),
        line=row.line,
        slices=_read_slices(value.get("slices"), kind),
        difficulty=_read_difficulty(value),
        evidence=evidence,
        split=split,
        answer_id=answer_id if isinstance(answer_id, str) else "",
    )


def _read_fact(value: Mapping[str, Any], key: str) -> Any:
    """The value of a key, or of that key under `metadata`, where FlashRAG and BEIR keep it."""
    metadata = value.get("metadata")
    found = value.get(key)
    return metadata.get(key) if found is None and isinstance(metadata, Mapping) else found


def read_id(value: Mapping[str, Any]) -> str | None:
    """The id of a row, `id` or `_id`; None if it has none. Raises `BadRow` for a wrong one."""
    for key in ("id", "_id"):
        identity = value.get(key)
        if identity is None:
            continue
        if isinstance(identity, bool) or not isinstance(identity, str | int):
            raise BadRow(f"'{key}' must be text or a whole number, got {show_value(identity)}")
        if not str(identity).strip():
            raise BadRow(f"'{key}' is empty")
        return ensure_encodable(key, str(identity))
    return None


def _read_question_text(value: Mapping[str, Any]) -> str:
    extra = value.get("extra_info")
    for key, holder in (
        ("question", value),
        ("query", value),
        ("extra_info.question", extra),
        ("prompt", value),
    ):
        name = key.rpartition(".")[2]
        if not isinstance(holder, Mapping) or holder.get(name) is None:
            continue
        text = _last_user_message(holder[name]) if key == "prompt" else holder[name]
        if not isinstance(text, str):
            raise BadRow(f"'{key}' must be text, got {show_value(text)}")
        if not text.strip():
            raise BadRow(f"'{key}' is empty")
        return ensure_encodable(key, text.strip())
    raise BadRow(f"has no 'question', only {_show_keys(value)}; expected {QUESTION_SHAPES}")


def _last_user_message(prompt: Any) -> Any:
    """The question inside a chat prompt: of Search-R1's, what follows its last `Question:`."""
    if isinstance(prompt, list):
        contents = [
            message.get("content")
            for message in prompt
            if isinstance(message, Mapping) and message.get("role", "user") == "user"
        ]
        if not contents:
            raise BadRow(f"'prompt' holds no user message: {show_value(prompt)}")
        prompt = contents[-1]
    return prompt.rpartition("Question:")[2] if isinstance(prompt, str) else prompt


def _read_answers(value: Mapping[str, Any], *, may_lack: bool) -> tuple[str, ...]:
    for key in _ANSWER_KEYS:
        said = _read_fact(value, key)
        if said is not None and not (may_lack and _is_none_at_all(said)):
            return _with_aliases(_flatten_answers(key, said), value)
    reward_model = value.get("reward_model")
    if isinstance(reward_model, Mapping) and reward_model.get("ground_truth") is not None:
        return _flatten_answers("reward_model.ground_truth", reward_model["ground_truth"])
    if may_lack:
        return ()
    keys = ", ".join(f"'{key}'" for key in (*_ANSWER_KEYS, "reward_model.ground_truth"))
    raise BadRow(f"has no answer, only {_show_keys(value)}; expected one of {keys}")


def _show_keys(value: Mapping[str, Any]) -> str:
    return show_value([key for key, said in value.items() if said is not None])


def _is_none_at_all(answers: Any) -> bool:
    return isinstance(answers, list | tuple) and not answers


def _with_aliases(answers: tuple[str, ...], value: Mapping[str, Any]) -> tuple[str, ...]:
    """Answers and the other names that MuSiQue accepts for them, `answer_aliases`."""
    aliases = _read_fact(value, "answer_aliases")
    if aliases is None or _is_none_at_all(aliases):
        return answers
    return tuple(dict.fromkeys((*answers, *_flatten_answers("answer_aliases", aliases))))


def _flatten_answers(key: str, answers: Any) -> tuple[str, ...]:
    """Accepted: text, a number, a list of these, or `{"target": …}` around any of them.

    A text may hold several answers with `<|answer_split|>` between them.
    """
    if isinstance(answers, Mapping):
        if "target" not in answers:
            raise BadRow(f"'{key}' is an object without 'target': {show_value(answers)}")
        key, answers = f"{key}.target", answers["target"]
    items = answers if isinstance(answers, list | tuple) else [answers]
    if not items:
        raise BadRow(f"'{key}' is an empty list; a question needs at least one answer")
    found: dict[str, None] = {}
    for item in items:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise BadRow(f"'{key}' must be text or a list of texts, got {show_value(item)}")
        for part in str(item).split(_ANSWER_SPLIT):
            if not part.strip():
                raise BadRow(f"'{key}' holds an empty answer")
            found.setdefault(ensure_encodable(key, part.strip()))
    return tuple(found)


def _read_gold_ids(ids: Any) -> tuple[str, ...]:
    if ids is None:
        return ()
    is_list = isinstance(ids, list | tuple)
    if not is_list or any(isinstance(i, bool) or not isinstance(i, str | int) for i in ids):
        raise BadRow(f"'supporting_ids' must be a list of passage ids, got {show_value(ids)}")
    return tuple(dict.fromkeys(str(i) for i in ids))


def _read_slices(names: Any, kind: str) -> tuple[str, ...]:
    if names is None:
        return ()
    if not isinstance(names, list | tuple) or any(not isinstance(name, str) for name in names):
        raise BadRow(f"'slices' must be a list of names, got {show_value(names)}")
    for name in names:
        if problem := find_slice_problem(name, kind):
            raise BadRow(f"'slices' holds {problem}")
    return tuple(dict.fromkeys(names))


def _read_difficulty(value: Mapping[str, Any]) -> str:
    """How hard a row says it is: `difficulty`, or `level` as HotpotQA calls it."""
    said = value.get("difficulty")
    if said is None:
        level = _read_fact(value, "level")  # another data set may mean something else by it
        said = level if isinstance(level, str) else ""
    if isinstance(said, bool) or not isinstance(said, str | int):
        raise BadRow(f"'difficulty' must be a name or a number, got {show_value(said)}")
    return re.sub(r"[^\w.-]+", "_", str(said).strip(), flags=re.ASCII)
