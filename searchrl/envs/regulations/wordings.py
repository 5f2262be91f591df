"""Topics and families: how articles and questions are worded, with slots for a school's values.

Owns the form of the word lists `daily.json`, `office.json` (topics) and `chains.json` (families)
in `searchrl/assets/regulations`; what they say is data. Slots: `{v}` the value; in a family also
`{A}` and `{a}` a name of the subject, `{p}` the entity, `{q}` the name in a question. In a
question the words in [brackets] form the expert's query, and the one in <angles> is the generic
word that a careless searcher types. `school.py` fills articles, `questions.py` fills questions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from string import ascii_uppercase
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field, with_config

from searchrl.envs.regulations.names import ValueKind, telling_words
from searchrl.envs.word_lists import ASSETS, EXACT, load_word_list

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


class ArticleWording(NamedTuple):
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
        # Without a marked generic word, the careless searcher types the question word.
        return Question(
            marked.translate(_MARKS),
            query.translate(_MARKS),
            thin.group(1) if thin else marked.split()[0].lower(),
            self.marked.translate(_MARKS),
        )


Articles = Annotated[tuple[ArticleWording, ...], Field(min_length=2)]
"""In a file: `[title, text]` each. The easy world uses the first two only."""

Questions = Annotated[
    tuple[QuestionWording, ...],
    Field(min_length=1),
    BeforeValidator(lambda texts: [{"marked": text} for text in texts]),
]
"""In a file: texts with marks."""


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class Topic:
    """A rule with one value, stated by one article."""

    key: str
    kind: ValueKind
    articles: Articles
    questions: Questions

    @property
    def gist(self) -> str:
        """What its articles and questions are about, in any wording."""
        return f"{self.key.replace('-', ' ')} {section(self.key)}"


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class Subject:
    """Something a chain starts from, with the names it goes by."""

    key: str
    names: Annotated[tuple[str, ...], Field(min_length=1)]


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class Family:
    """A kind of chain: a subject's article names an entity, another article is about it."""

    key: str
    bridge_kind: ValueKind
    value_kind: ValueKind
    attribute: str
    subjects: tuple[Subject, ...]
    links: Articles
    entities: Articles
    subject_remarks: Articles
    entity_remarks: Articles
    link_questions: Questions
    entity_questions: Questions
    hop_questions: Questions

    def link_gist(self, subject: Subject) -> str:
        """What a link article and a question about it are about, for every name of the subject."""
        return f"{self.bridge_kind} for {subject.key} {section(f'{self.key}:{subject.key}')}"

    def entity_gist(self, entity: str) -> str:
        """What an entity's article and a question about it are about.

        Ends with a telling word: `limit of Norden`, not `of Norden Fund`. So the last tokens decide
        whether two gists are the same.
        """
        return " ".join([self.attribute, "of", *telling_words(entity)])

    def entity_query(self, entity: str) -> str:
        """What to search for once the entity is known."""
        return f"{entity} {self.attribute}"


def section(key: str) -> str:
    """The section of the catalogue, `§DR`, under which a topic or a family's subject is filed.

    The same for every school. It has two letters, so that a tokenizer can have one token for each:
    a model then finds an equal section by looking for one token (docs/log.md).
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
    """All topics with a single article, in the order of the files."""
    daily, office = ASSETS / "regulations/daily.json", ASSETS / "regulations/office.json"
    return load_word_list(tuple[Topic, ...], daily) + load_word_list(tuple[Topic, ...], office)


@cache
def load_families() -> tuple[Family, ...]:
    """All kinds of chain, in the order of the file."""
    return load_word_list(tuple[Family, ...], ASSETS / "regulations/chains.json")
