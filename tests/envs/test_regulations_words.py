"""The word lists of `regulations`: how many are held out, what they may hold, whether they fit."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pytest

from searchrl.envs.regulations.questions import core_in_frame, put_in_frame
from searchrl.envs.regulations.world.searching import words_of
from searchrl.envs.regulations.world.wordings import (
    Wording,
    Wordings,
    load_families,
    load_phrases,
    load_shelves,
    load_topics,
)

SYNONYMS = load_phrases().synonyms
ARTICLE, QUESTION = "article", "question"


class Listed(NamedTuple):
    """A list of wordings: where it stands, what it is part of, and the slots it must have."""

    place: str
    part: str
    wordings: Wordings
    slots: set[str]


def lists() -> Iterator[Listed]:
    """All lists of wordings that are split between training and the test split."""
    for topic in load_topics():
        yield Listed(f"{topic.key}.facts", ARTICLE, topic.facts, {"v"})
        yield Listed(f"{topic.key}.questions", QUESTION, topic.questions, set())
        yield Listed(f"{topic.key}.indirect", QUESTION, topic.indirect, set())
    for shelf in load_shelves():
        yield Listed(f"{shelf.key}.facts", ARTICLE, shelf.facts, {"v", "s"})
        yield Listed(f"{shelf.key}.questions", QUESTION, shelf.questions, {"s"})
        yield Listed(f"{shelf.key}.indirect", QUESTION, shelf.indirect, {"s"})
    for family in load_families():
        yield Listed(f"{family.key}.links", ARTICLE, family.links, {"v", "s"})
        yield Listed(f"{family.key}.entities", ARTICLE, family.entities, {"v", "p"})
        yield Listed(f"{family.key}.link_questions", QUESTION, family.link_questions, {"s"})
        yield Listed(f"{family.key}.link_indirect", QUESTION, family.link_indirect, {"s"})
        yield Listed(f"{family.key}.entity_questions", QUESTION, family.entity_questions, {"p"})
        yield Listed(f"{family.key}.entity_indirect", QUESTION, family.entity_indirect, {"p"})
        yield Listed(f"{family.key}.descriptions", QUESTION, family.descriptions, {"s"})
    phrases = load_phrases()
    yield Listed("exceptions", ARTICLE, phrases.exceptions, {"main", "c"})
    yield Listed("past", ARTICLE, phrases.past, {"main", "w"})
    yield Listed("direct", QUESTION, phrases.direct, {"q"})
    yield Listed("indirect", QUESTION, phrases.indirect, {"i"})


LISTS = tuple(lists())


def slots_of(text: str) -> list[str]:
    return [name for _, name, *_ in string.Formatter().parse(text) if name is not None]


def filled(text: str) -> list[str]:
    """The text with each choice of synonyms; other slots stay."""
    names = sorted({name for name in slots_of(text) if name in SYNONYMS})
    chosen = product(*(SYNONYMS[name] for name in names))
    others = {name: "{" + name + "}" for name in slots_of(text)}
    return [text.format(**others | dict(zip(names, words, strict=True))) for words in chosen]


def words_in(texts: list[str]) -> set[str]:
    return {word for text in texts for word in words_of(re.sub(r"\{\w+\}", " ", text))}


@pytest.mark.parametrize("part", [ARTICLE, QUESTION])
def test_no_held_out_text_can_be_made_of_another_one(part: str) -> None:
    """Also not by filling synonyms, and not within a list of its own."""
    seen: dict[str, str] = {}
    for place, its_part, wordings, _ in LISTS:
        if its_part == part:
            seen |= {one.casefold(): place for text in wordings.both for one in filled(text)}
    for place, its_part, wordings, _ in LISTS:
        if its_part == part:
            made = [one.casefold() for text in wordings.test for one in filled(text)]
            assert not [(place, one, seen[one]) for one in made if one in seen]
            if place != "direct":
                assert len(set(wordings)) == len(list(wordings)), place


def test_every_word_of_a_held_out_text_occurs_in_training() -> None:
    shown = [text for listed in LISTS for text in listed.wordings.both]
    shown += [word for words in SYNONYMS.values() for word in words]
    known = words_in(shown)
    for place, _, wordings, _ in LISTS:
        assert words_in(list(wordings.test)) <= known, (
            place,
            words_in(list(wordings.test)) - known,
        )


def test_a_short_note_ends_as_a_question_before_another_sentence() -> None:
    frame, last = Wording("{Q} We need it today.", True), Wording("Quick question: {q}", True)
    asked = [
        put_in_frame(core_in_frame("How much for the bus", one, "", True, False), one)
        for one in (frame, last)
    ]
    assert asked == [
        "How much for the bus? We need it today.",
        "Quick question: how much for the bus",
    ]
