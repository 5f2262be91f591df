"""A folder of text and Markdown files as a corpus of passages.

There is one for each section of a Markdown file, one for a whole text file; longer ones than
`MAX_PASSAGE_CHARS` are cut at paragraph ends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from searchrl.core.episode import Passage
from searchrl.data.problems import Problems
from searchrl.data.rows import read_text

Section = tuple[tuple[str, ...], str]
"""A part of a Markdown file: its heading with those above it, and its own text."""

TEXT_SUFFIXES = (".txt", ".md", ".markdown")

MAX_PASSAGE_CHARS = 1000
"""Longest passage made of prose: three of them are about as much as one observation may hold."""

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n\s*")
_SENTENCE_END = re.compile(
    # Not behind an initial, nor behind what is shortened before a name or a number.
    r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)\]]))"
    r"(?<!\b[A-Z]\.)(?<!\b(?:Dr|Mr|Ms|St|No|cf|vs)\.)(?<!\b(?:Mrs|Art|Fig|Nos|Sec|Vol)\.)"
    r"(?<!\bProf\.)(?<!\b(?:e\.g|i\.e)\.)\s+"
    r"|(?<=[。！？；])\s*|\n"
)


def read_text_folder(folder: Path, problems: Problems) -> list[Passage]:
    """Read every text file below `folder` but hidden ones; ids are the paths inside the folder."""
    passages: list[Passage] = []
    num_before = len(problems.found)
    paths = (path for path in folder.rglob("*") if path.suffix.lower() in TEXT_SUFFIXES)
    for path in sorted(paths):
        parts = path.relative_to(folder).parts
        if not os.path.isfile(path) or any(part.startswith(".") for part in parts):
            continue
        passages.extend(read_text_file(path, "/".join(parts), problems))
    if not passages and len(problems.found) == num_before:
        expected = ", ".join(TEXT_SUFFIXES)
        problems.add(folder, 0, f"holds no passage; expected {expected} files with text in them")
    return passages


def read_text_file(path: Path, name: str, problems: Problems) -> list[Passage]:
    """Read one file into passages: ids are `name`, with `#n` for several."""
    text = read_text(path, problems, f"a text file ({', '.join(TEXT_SUFFIXES)})")
    if text is None:
        return []
    text = text.replace("\r\n", "\n")
    file_title = " ".join(re.split(r"[\s_-]+", path.stem)).strip()
    if path.suffix.lower() == ".txt":
        sections: Iterable[Section] = [((), text)]
    else:
        sections = split_markdown(_FRONT_MATTER.sub("", text, count=1))
    pieces = [
        (" > ".join(headings) or file_title, piece)
        for headings, prose in sections
        for piece in split_prose(prose)
    ]
    return [
        Passage(id=f"{name}#{number}" if len(pieces) > 1 else name, title=title, text=piece)
        for number, (title, piece) in enumerate(pieces, 1)
    ]


def split_markdown(text: str) -> Iterator[Section]:
    """Yield the sections of a Markdown text; a last heading without text is its own text."""
    path: list[tuple[int, str]] = []
    sections: list[tuple[int, tuple[str, ...], list[str]]] = [(0, (), [])]
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None or not heading[2]:
            sections[-1][2].append(line)
            continue
        level = len(heading[1])
        path = [(above, title) for above, title in path if above < level] + [(level, heading[2])]
        sections.append((level, tuple(title for _, title in path), []))
    next_levels = [section[0] for section in sections[1:]] + [0]
    for (level, titles, lines), following in zip(sections, next_levels, strict=True):
        prose = "\n".join(lines).strip()
        if not prose and titles and following <= level:
            prose = titles[-1]
        if prose:
            yield titles, prose


def split_prose(text: str, max_chars: int = MAX_PASSAGE_CHARS) -> list[str]:
    """Cut a text into pieces of at most `max_chars`, at paragraph ends where that is possible.

    A paragraph that is too long is cut at sentence ends, such a sentence at the limit.
    """
    text = text.strip()
    if len(text) <= max_chars:
        return [text] if text else []
    parts: list[str] = []
    for paragraph in _PARAGRAPH_END.split(text):
        pieces = [
            sentence[start : start + max_chars]
            for sentence in _SENTENCE_END.split(paragraph)
            for start in range(0, len(sentence), max_chars)
        ]
        is_short = len(paragraph) <= max_chars
        parts += [paragraph] if is_short else _pack(pieces, " ", max_chars)
    return _pack(parts, "\n\n", max_chars)


def _pack(parts: list[str], joint: str, max_chars: int) -> list[str]:
    packed: list[str] = []
    for part in filter(None, (part.strip() for part in parts)):
        if packed and len(packed[-1]) + len(joint) + len(part) <= max_chars:
            packed[-1] += joint + part
        else:
            packed.append(part)
    return packed
