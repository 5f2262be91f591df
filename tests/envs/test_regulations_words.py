"""The word lists of `regulations`: how many are held out, what they may hold, whether they fit."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import fields
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
    """A list of wordings: where it stands, and what it is part of."""

    place: str
    part: str
    wordings: Wordings


def lists() -> Iterator[Listed]:
    """All lists of wordings that are split between training and the test split."""
    of_articles = {"facts", "links", "entities", "exceptions", "past"}
    for item in (*load_topics(), *load_shelves(), *load_families(), load_phrases()):
        for field in fields(item):
            found = getattr(item, field.name)
            if isinstance(found, Wordings):
                part = ARTICLE if field.name in of_articles else QUESTION
                yield Listed(f"{getattr(item, 'key', '')}.{field.name}", part, found)


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
    for place, its_part, wordings in LISTS:
        if its_part == part:
            seen |= {one.casefold(): place for text in wordings.both for one in filled(text)}
    for place, its_part, wordings in LISTS:
        if its_part == part:
            made = [one.casefold() for text in wordings.test for one in filled(text)]
            assert not [(place, one, seen[one]) for one in made if one in seen]
            if place != ".direct":
                assert len(set(wordings)) == len(list(wordings)), place


def test_every_word_of_a_held_out_text_occurs_in_training() -> None:
    shown = [text for listed in LISTS for text in listed.wordings.both]
    shown += [word for words in SYNONYMS.values() for word in words]
    known = words_in(shown)
    for place, _, wordings in LISTS:
        assert not words_in(list(wordings.test)) - known, place


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
