"""Parses the wordings of `daily`, `office` and `chains` into topics and families.

Owns the little format of those files and nothing of what they say. `school.py` fills article
wordings with a school's values, `questions.py` fills question wordings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from string import ascii_uppercase
from typing import NamedTuple

from searchrl.envs.regulations.chains import CHAINS
from searchrl.envs.regulations.daily import DAILY
from searchrl.envs.regulations.names import ValueKind, telling_words
from searchrl.envs.regulations.office import OFFICE

_QUERY_WORD = re.compile(r"\[([^\]]*)\]")
_THIN_WORD = re.compile(r"<([^>]*)>")
_MARKS = str.maketrans("", "", "[]<>")


class Question(NamedTuple):
    """A question with the query an expert and the one a careless searcher would type.

    `template` is the question before a subject's name went in.
    """

    text: str
    query: str
    thin_query: str
    template: str


@dataclass(frozen=True, slots=True)
class ArticleWording:
    """Title and text of an article, with slots."""

    title: str
    text: str

    def fill(self, **slots: str) -> tuple[str, str]:
        """Title and text with the slots filled, each beginning with a capital."""
        title, text = self.title.format(**slots), self.text.format(**slots)
        return title[0].upper() + title[1:], text[0].upper() + text[1:]


@dataclass(frozen=True, slots=True)
class QuestionWording:
    """A question with marks: [query word], <generic word>, {q} for a subject's name."""

    marked: str

    def fill(self, subject: str = "") -> Question:
        """The question about `subject`, with its queries."""
        marked = self.marked.format(q=subject)
        query = " ".join(_QUERY_WORD.findall(marked))
        thin = _THIN_WORD.search(marked)
        # Where no generic word is marked, the careless searcher types the question word.
        return Question(
            marked.translate(_MARKS),
            query.translate(_MARKS),
            thin.group(1) if thin else marked.split()[0].lower(),
            self.marked.translate(_MARKS),
        )


@dataclass(frozen=True, slots=True)
class Topic:
    """A rule with one value, stated by one article."""

    key: str
    kind: ValueKind
    articles: tuple[ArticleWording, ...]
    questions: tuple[QuestionWording, ...]

    @property
    def gist(self) -> str:
        """What its articles and questions are about, whatever their wording."""
        return f"{self.key.replace('-', ' ')} {section(self.key)}"


@dataclass(frozen=True, slots=True)
class Subject:
    """Something a chain starts from, with the names it goes by."""

    key: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of chain: a subject's article names an entity, another article is about it."""

    key: str
    bridge_kind: ValueKind
    value_kind: ValueKind
    attribute: str
    subjects: tuple[Subject, ...]
    links: tuple[ArticleWording, ...]
    entities: tuple[ArticleWording, ...]
    subject_remarks: tuple[ArticleWording, ...]
    entity_remarks: tuple[ArticleWording, ...]
    link_questions: tuple[QuestionWording, ...]
    entity_questions: tuple[QuestionWording, ...]
    hop_questions: tuple[QuestionWording, ...]

    def link_gist(self, subject: Subject) -> str:
        """What a link article and a question about it are about, whichever name is used."""
        return f"{self.bridge_kind} for {subject.key} {section(f'{self.key}:{subject.key}')}"

    def entity_gist(self, entity: str) -> str:
        """What an entity's article and a question about it are about.

        Ends with a telling word: `limit of Norden`, not `of Norden Fund`. Whether it is that of a
        question is then a matter of its last tokens.
        """
        return " ".join([self.attribute, "of", *telling_words(entity)])

    def entity_query(self, entity: str) -> str:
        """What to search for once the entity is known."""
        return f"{entity} {self.attribute}"


def section(key: str) -> str:
    """The section of the catalogue, `§DR`, under which a topic or a family's subject is filed.

    The same for every school. Two letters, so that a tokenizer can give each its own token: a
    model then finds an equal one by looking for one token (docs/log.md).
    """
    chapter, place = divmod(_catalogue()[key], 10)
    return f"§{ascii_uppercase[chapter]}{ascii_uppercase[place + 10]}"


@cache
def _catalogue() -> dict[str, int]:
    """Topics and subjects in file order."""
    keys = [topic.key for topic in load_topics()]
    keys += [f"{family.key}:{one.key}" for family in load_families() for one in family.subjects]
    return {key: place for place, key in enumerate(keys)}


@cache
def load_topics() -> tuple[Topic, ...]:
    """All topics with a single article, in file order."""
    return tuple(
        Topic(
            key=header[0],
            kind=ValueKind(header[1]),
            articles=tuple(_article(line) for line in lines if not line.startswith("? ")),
            questions=tuple(QuestionWording(line[2:]) for line in lines if line.startswith("? ")),
        )
        for header, lines in _blocks(DAILY + OFFICE, "== ")
    )


@cache
def load_families() -> tuple[Family, ...]:
    """All kinds of chain, in file order."""
    return tuple(_family(header, lines) for header, lines in _blocks(CHAINS, "=== "))


def _family(header: list[str], lines: list[str]) -> Family:
    def marked(mark: str) -> list[str]:
        return [line[len(mark) + 1 :] for line in lines if line.startswith(mark + " ")]

    def articles(mark: str) -> tuple[ArticleWording, ...]:
        return tuple(_article(text) for text in marked(mark))

    def questions(mark: str) -> tuple[QuestionWording, ...]:
        return tuple(QuestionWording(text) for text in marked(mark))

    subjects = [text.split(": ", 1) for text in marked("*")]
    return Family(
        key=header[0],
        bridge_kind=ValueKind(header[1]),
        value_kind=ValueKind(header[2]),
        attribute=marked("+")[0],
        subjects=tuple(Subject(key, tuple(names.split(", "))) for key, names in subjects),
        links=articles(">"),
        entities=articles("@"),
        subject_remarks=articles("-"),
        entity_remarks=articles("~"),
        link_questions=questions("?"),
        entity_questions=questions("?@"),
        hop_questions=questions("??"),
    )


def _article(line: str) -> ArticleWording:
    title, text = line.split(" | ")
    return ArticleWording(title, text)


def _blocks(source: str, mark: str) -> list[tuple[list[str], list[str]]]:
    """Split `source` at its header lines into (words of the header, lines below it)."""
    blocks = []
    for block in ("\n" + source.strip()).split("\n" + mark)[1:]:
        header, *lines = block.splitlines()
        blocks.append((header.split(), [line for line in lines if line.strip()]))
    return blocks
