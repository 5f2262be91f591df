"""Handbooks and questions from files: the demo handbook and a user's own.

Owns the two handbook formats (Markdown with a `## Title` per article; JSON) and the question rows
(JSON or JSONL), and reports every unusable row at once with file and line. Knows nothing of
generated schools. Called by `env.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from searchrl.core.episode import Passage
from searchrl.envs.regulations.questions import LOOKUP, NOT_REGULATED, NOT_REGULATED_ANSWER, TWO_HOP
from searchrl.envs.regulations.word_lists import ASSETS
from searchrl.errors import DataError

_FORMATS = "Expected Markdown (.md) with '## Title' sections, or JSON (.json)"
_ARTICLES_KEY = re.compile(r'"articles"\s*:\s*(?=\[)')


@dataclass(frozen=True, slots=True)
class Handbook:
    """A fixed handbook: the school's name and its articles."""

    key: str
    name: str
    passages: tuple[Passage, ...]


class FileQuestion(NamedTuple):
    """One question about a fixed handbook; `queries` and `bridge` serve the scripted policies."""

    id: str
    question: str
    answers: tuple[str, ...]
    kind: str
    gold_ids: tuple[str, ...]
    queries: tuple[str, ...]
    bridge: str


class _Row(NamedTuple):
    line: int
    value: Any


@cache
def load_demo() -> tuple[Handbook, tuple[FileQuestion, ...]]:
    """The handbook and questions that come with the package."""
    text = (ASSETS / "demo_handbook.md").read_text(encoding="utf-8")
    handbook = parse_markdown(text, "demo_handbook.md")
    rows = (ASSETS / "demo_questions.json").read_text(encoding="utf-8")
    return handbook, parse_questions(rows, "demo_questions.json", handbook)


def load_handbook(path: Path) -> Handbook:
    """Read a handbook of the user's.

    Raises:
        DataError: the file cannot be read or holds unusable articles; lists all with their lines.
    """
    text = _read(path, "handbook")
    if path.suffix.lower() in (".md", ".markdown"):
        return parse_markdown(text, str(path))
    if path.suffix.lower() == ".json":
        return parse_json(text, str(path))
    raise DataError(f"{path}: unknown kind of handbook. {_FORMATS}.")


def load_questions(path: Path, handbook: Handbook) -> tuple[FileQuestion, ...]:
    """Read questions about `handbook` from JSON (a list) or JSONL.

    Raises:
        DataError: the file cannot be read or holds unusable rows; lists all with their lines.
    """
    return parse_questions(_read(path, "questions"), str(path), handbook)


def parse_markdown(text: str, source: str) -> Handbook:
    """Read articles from Markdown: `# School` once, then `## Title` and the article's text."""
    name, problems = "", []
    sections: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            sections.append((number, line[3:].strip(), []))
        elif line.startswith("# ") and not name:
            name = line[2:].strip()
        elif sections:
            sections[-1][2].append(line.strip())
    rows = []
    for number, title, body in sections:
        rows.append(_Row(number, {"title": title, "text": " ".join(filter(None, body))}))
    if not rows:
        problems.append(f"{source}:1: no article found. {_FORMATS}.")
    return _handbook(rows, source, name, problems)


def parse_json(text: str, source: str) -> Handbook:
    """Read articles from JSON: a list of `{id?, title, text}`, or `{name, articles: [...]}`."""
    whole, name, start = _decode(text, source), "", 0
    if isinstance(whole, dict):
        name = str(whole.get("name", ""))
        found = _ARTICLES_KEY.search(text)
        if not isinstance(whole.get("articles"), list) or found is None:
            raise DataError(f'{source}:1: expected a list, or {{"name": …, "articles": [...]}}.')
        start = found.end()
    elif not isinstance(whole, list):
        raise DataError(f"{source}:1: expected a list of articles, got {type(whole).__name__}.")
    problems = [] if whole else [f"{source}:1: no article found."]
    return _handbook(list(_elements(text, start)), source, name, problems)


def parse_questions(text: str, source: str, handbook: Handbook) -> tuple[FileQuestion, ...]:
    """Read question rows: `question`, `answer` and optionally `id`, `kind`, `articles` (ids or
    titles of the evidence), `queries` and `bridge` (what a two-hop question's first hop yields).
    """
    if text.lstrip().startswith("["):
        _decode(text, source)
        rows = list(_elements(text, 0))
    else:
        lines = enumerate(text.splitlines(), 1)
        rows = [_Row(n, _decode(line, source, n)) for n, line in lines if line.strip()]
    known = {p.title.casefold(): p.id for p in handbook.passages}
    known |= {p.id.casefold(): p.id for p in handbook.passages}
    questions, problems = [], []
    for number, row in enumerate(rows, 1):
        read = _question(row.value, f"q{number:02d}", known)
        if isinstance(read, str):
            problems.append(f"{source}:{row.line}: {read}")
        else:
            questions.append(read)
    if not rows:
        problems.append(f"{source}:1: no question found.")
    _ensure_no(problems)
    return tuple(questions)


def _question(row: Any, fallback_id: str, known: dict[str, str]) -> FileQuestion | str:
    """The question of a row, or what is wrong with it."""
    if not isinstance(row, dict):
        return f"expected an object with 'question' and 'answer', got {type(row).__name__}"
    question = row.get("question")
    if not isinstance(question, str) or not question.strip():
        return "'question' must be a non-empty string"
    answers = _strings(row.get("answer", row.get("answers")))
    if not answers:
        return "'answer' must be a non-empty string or a list of them"
    evidence = _strings(row.get("articles", []))
    queries = _strings(row.get("queries", []))
    if evidence is None or queries is None:
        return "'articles' and 'queries' must be strings or lists of non-empty strings"
    unknown = [name for name in evidence if name.casefold() not in known]
    if unknown:
        return f"'articles' names {unknown}, which the handbook does not have"
    gold_ids = tuple(known[name.casefold()] for name in evidence)
    kind = row.get("kind") or (
        NOT_REGULATED
        if answers[0].casefold() == NOT_REGULATED_ANSWER
        else TWO_HOP
        if len(gold_ids) > 1
        else LOOKUP
    )
    return FileQuestion(
        id=str(row.get("id", fallback_id)),
        question=question.strip(),
        answers=answers,
        kind=str(kind),
        gold_ids=gold_ids,
        queries=queries,
        bridge=str(row.get("bridge", "")),
    )


def _strings(value: Any) -> tuple[str, ...] | None:
    """The strings of a string or list; None if there is anything else in it."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(v, str) and v.strip() for v in values):
        return None
    return tuple(v.strip() for v in values)


def _handbook(rows: Sequence[_Row], source: str, name: str, problems: list[str]) -> Handbook:
    passages: list[Passage] = []
    seen: dict[str, int] = {}
    for number, (line, row) in enumerate(rows, 1):
        if not isinstance(row, dict):
            kind = type(row).__name__
            problems.append(f"{source}:{line}: expected an object with 'text', got {kind}")
            continue
        identity = str(row.get("id", f"art-{number:02d}"))
        title, text = row.get("title", ""), row.get("text")
        if not isinstance(text, str) or not text.strip():
            problems.append(f"{source}:{line}: article '{title or identity}' has no text")
        elif not isinstance(title, str):
            problems.append(f"{source}:{line}: 'title' must be a string")
        elif identity in seen:
            problems.append(f"{source}:{line}: id '{identity}' is also at line {seen[identity]}")
        else:
            seen[identity] = line
            passages.append(Passage(identity, text.strip(), title.strip()))
    _ensure_no(problems)
    return Handbook(f"handbook/{source}", name or Path(source).stem, tuple(passages))


def _elements(text: str, start: int) -> Iterator[_Row]:
    """The elements of the JSON array at `start`, each with its line; the text is known to parse."""
    decoder = json.JSONDecoder()
    at = text.index("[", start) + 1
    while True:
        while text[at].isspace() or text[at] == ",":
            at += 1
        if text[at] == "]":
            return
        value, end = decoder.raw_decode(text, at)
        yield _Row(text.count("\n", 0, at) + 1, value)
        at = end


def _decode(text: str, source: str, line: int = 1) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{source}:{line + error.lineno - 1}: not valid JSON: {error.msg} "
            f"(column {error.colno})."
        ) from error


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read the {what} file: {error}") from error


def _ensure_no(problems: Sequence[str]) -> None:
    if problems:
        raise DataError("\n".join(problems))
