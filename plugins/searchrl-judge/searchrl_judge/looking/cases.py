"""The cases that a judge is looked at with: rows of a file, or those of the package.

Owns what a row means: a question with an answer, or a rollout that a run recorded. Files are read
by `searchrl.data`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl import show_value
from searchrl.contracts import JUDGE_SCALE, JudgeCase
from searchrl.data import BadRow, Problems, Row, parse_rows

OWN = Path(__file__).resolve().parents[1] / "assets" / "cases.jsonl"
"""41 answers to 13 questions in six languages, each with the score that a person gave."""

_EXPECTED = (
    'such as {"question": "…", "answer": "…", "answers": ["accepted", …], "score": 0 to 1}, or a '
    "row of a run's rollouts"
)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A case, and the score that a person gave it, if one did."""

    case: JudgeCase
    label: float | None = None


def read_cases(path: Path | None = None) -> list[Labelled]:
    """The cases of a file, in its order; without one, those of the package.

    Rollouts without a final answer are left out: there is nothing to judge.

    Raises:
        DataError: with the first rows that cannot be used.
    """
    problems = Problems()
    file = OWN if path is None else path
    made = parse_rows(file, problems, _read, f"case; expected rows {_EXPECTED}")
    found = [one for one in made if one is not None]
    problems.ensure_none()
    return found


def _read(given: Row) -> Labelled | None:
    row = given.value
    if "final_answer" in row and isinstance(row.get("task"), Mapping):
        if row["final_answer"] is None:
            return None
        row = {**row["task"], "answer": row["final_answer"]}
    question, answer = (_text(row, key) for key in ("question", "answer"))
    accepted = row.get("answers", [])
    accepted = [accepted] if isinstance(accepted, str) else accepted
    if not isinstance(accepted, list | tuple) or not all(isinstance(a, str) for a in accepted):
        raise BadRow(f"'answers' is {show_value(accepted)}; expected a list of texts")
    label = row.get("score")
    if label is not None and (isinstance(label, bool) or label not in JUDGE_SCALE):
        raise BadRow(f"'score' is {show_value(label)}; expected 0, 0.5 or 1")
    return Labelled(JudgeCase(question, answer, tuple(accepted)), label)


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise BadRow(f"'{key}' is {show_value(value)}; expected text, in a row {_EXPECTED}")
    return value
