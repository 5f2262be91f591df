"""Handbooks and questions from files: the demo handbook and a user's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from searchrl.core.episode import Passage
from searchrl.data.cells import read_texts
from searchrl.data.passages import parse_passage
from searchrl.data.problems import BadRow, Problems, Row
from searchrl.data.questions import Question, parse_question
from searchrl.data.rows import parse_rows, read_rows, read_text
from searchrl.envs.regulations.questions import LOOKUP, NOT_REGULATED, NOT_REGULATED_ANSWER, TWO_HOP
from searchrl.envs.word_lists import ASSETS
from searchrl.errors import show_value

_FORMATS = "Markdown (.md) with '## Title' sections, or JSON (.json)"


@dataclass(frozen=True, slots=True)
class Handbook:
    """A fixed handbook: the school's name and its articles."""

    key: str
    name: str
    passages: tuple[Passage, ...]


@cache
def load_demo() -> tuple[Handbook, tuple[Question, ...]]:
    """The handbook and questions that come with the package."""
    handbook = load_handbook(ASSETS / "regulations/demo_handbook.md")
    return handbook, load_questions(ASSETS / "regulations/demo_questions.json", handbook)


def load_handbook(path: Path) -> Handbook:
    """Read a handbook: Markdown (`# School` once, then `## Title` and the article's text), or JSON.

    JSON is a list of `{id?, title, text}`, or `{name, articles: [...]}`. Articles without an id are
    `art-01`, `art-02`, … by their place. `DataError` names the first articles that are unusable.
    """
    problems = Problems()
    name, rows = "", list[Row]()
    if path.suffix.lower() == ".json":
        name, rows = _read_json(path, problems)
    elif path.suffix.lower() in (".md", ".markdown"):
        name, rows = _read_sections(read_text(path, problems, f"a handbook: {_FORMATS}") or "")
    else:
        problems.add(path, 0, f"unknown kind of handbook; expected {_FORMATS}")
    problems.ensure_none()
    for place, row in enumerate(rows, 1):
        if row.value.get("id") is None:
            rows[place - 1] = Row(row.number, {**row.value, "id": f"art-{place:02d}"})
    expected = f"article; expected {_FORMATS}"
    articles = parse_rows(path, problems, _parse_article, expected, places={}, rows=iter(rows))
    passages = tuple(articles)
    problems.ensure_none()
    return Handbook(f"handbook/{path}", name or path.stem, passages)


def load_questions(path: Path, handbook: Handbook) -> tuple[Question, ...]:
    """Read question rows about `handbook`.

    Keys are `question`, `answer` and optionally `id`, `kind`, `articles` (ids or titles of the
    evidence), `queries` and `bridge` (the answer of the first hop of a two-hop question).
    `DataError` names the first rows that are unusable.
    """
    problems = Problems()
    known = {p.title.casefold(): p.id for p in handbook.passages}
    known |= {p.id.casefold(): p.id for p in handbook.passages}
    parse = partial(_parse_question, path=path, known=known)
    expected = 'question; expected rows {"question", "answer", "articles"}'
    questions = tuple(parse_rows(path, problems, parse, expected, places={}))
    problems.ensure_none()
    return questions


def _parse_question(row: Row, path: Path, known: dict[str, str]) -> Question:
    question = parse_question(row, path, path.stem)
    evidence, queries = (
        read_texts(row.value, key, "a text or a list of texts") for key in ("articles", "queries")
    )
    unknown = [name for name in evidence if name.casefold() not in known]
    if unknown:
        raise BadRow(f"'articles' names {show_value(unknown)}, which the handbook does not have")
    kind = row.value.get("kind")
    if not kind:
        is_silent = question.answers[0].casefold() == NOT_REGULATED_ANSWER
        kind = NOT_REGULATED if is_silent else TWO_HOP if len(evidence) > 1 else LOOKUP
    return replace(
        question,
        gold_ids=tuple(known[name.casefold()] for name in evidence),
        kind=str(kind),
        queries=queries,
        bridge=str(row.value.get("bridge") or ""),
    )


def _read_sections(text: str) -> tuple[str, list[Row]]:
    """The articles of a Markdown handbook; a section's line is that of its heading."""
    name = ""
    sections: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("## "):
            sections.append((number, line[3:].strip(), []))
        elif line.startswith("# ") and not name:
            name = line[2:].strip()
        elif sections:
            sections[-1][2].append(line.strip())
    return name, [
        Row(number, {"title": title, "text": " ".join(filter(None, body))})
        for number, title, body in sections
    ]


def _read_json(path: Path, problems: Problems) -> tuple[str, list[Row]]:
    """The school's name in a JSON handbook, if it has one, and its articles, numbered from 1."""
    rows = list(read_rows(path, problems))
    whole = rows[0].value if len(rows) == 1 else {}
    articles = whole.get("articles")
    if not isinstance(articles, list):
        return "", rows
    if not all(isinstance(one, dict) for one in articles):
        problems.add(path, 0, '\'articles\' must be a list of {"title", "text"}')
    return str(whole.get("name", "")), [Row(number, one) for number, one in enumerate(articles, 1)]


def _parse_article(row: Row) -> Passage:
    passage = parse_passage(row.value)
    if not passage.text:
        raise BadRow(f"article '{passage.title}' has no text")
    return passage
