"""Faults of questions that can be seen before anything is played: pure functions of a data set.

Each returns what it found by the number of the question. Words are those of `tokenize`: neither
case nor punctuation counts.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from searchrl.core.episode import Passage
from searchrl.data.questions import Question
from searchrl.errors import show_value
from searchrl.retrieval import tokenize

NEAR = 0.8
"""Likeness from which two questions are nearly the same."""
_ARTICLES = {"a", "an", "the"}

Found = dict[int, str]


def find_unreachable(
    questions: Sequence[Question], gold: Collection[str], passages: Iterable[Passage]
) -> Found:
    """Questions with a gold passage that is not in `gold`, the ids of those that exist.

    Also those that name none, and whose answers stand in no passage.
    """
    open_ones = {n: q for n, q in enumerate(questions) if not q.gold_ids and q.texts}
    texts = find_texts({text for one in open_ones.values() for text in one.texts}, passages)
    found = {
        number: "no passage holds an answer"
        for number, one in open_ones.items()
        if texts.isdisjoint(one.texts)
    }
    for number, one in enumerate(questions):
        if lacking := [name for name in one.gold_ids if name not in gold]:
            found[number] = f"no passage {show_value(lacking)}"
    return found


def find_texts(texts: Collection[str], passages: Iterable[Passage]) -> set[str]:
    """The texts whose words stand in a passage, one after another."""
    wanted = defaultdict[str, list[tuple[list[str], str]]](list)
    for text in texts:
        if words := tokenize(text):
            wanted[words[0]].append((words, text))
    found = set[str]()
    for passage in passages if wanted else ():
        words = tokenize(f"{passage.title} {passage.text}")
        for place, word in enumerate(words):
            for one, text in wanted.get(word, ()):
                if words[place : place + len(one)] == one:
                    found.add(text)
                    wanted[word] = [other for other in wanted[word] if other[1] != text]
    return found


def find_told(questions: Sequence[Question]) -> Found:
    """Questions in which an answer stands, unless they offer it to choose (*A or B?*)."""
    found: Found = {}
    for number, question in enumerate(questions):
        text = f" {_content(question.question)} "
        for answer in question.answers:
            words = _content(answer)
            told = rf"(?<! or)(?<! and) {re.escape(words)} (?!(?:or|and) )"
            if words and f" {words} " in text and re.search(told, text):
                found[number] = f"the question holds its answer {show_value(answer)}"
    return found


def find_twins(questions: Sequence[Question], splits: Sequence[str]) -> Found:
    """Questions that stand, exactly or nearly so, earlier in another split.

    Likeness is the Jaccard index of the words, weighted by how rare they are: a question from the
    same template, with another name in it, is no copy.
    """
    sets = [frozenset(tokenize(one.question)) for one in questions]
    counts = Counter(word for words in sets for word in words)
    weights = {word: math.log(1 + len(questions) / count) for word, count in counts.items()}

    def weigh(words: Iterable[str]) -> float:
        return math.fsum(weights[word] for word in words)

    index = defaultdict[str, list[int]](list)
    found: Found = {}
    for number, words in enumerate(sets):
        left, candidates = (1 - NEAR) * weigh(words), set[int]()
        # Two that are alike share one of the rarest words of each, which are a fifth of the weight.
        for word in sorted(words, key=lambda word: (-weights[word], word)):
            if left < 0:
                break
            candidates.update(n for n in index[word] if splits[n] != splits[number])
            index[word].append(number)
            left -= weights[word]
        alike = {n: weigh(words & sets[n]) / weigh(words | sets[n]) for n in candidates}
        twin = max(alike, key=lambda n: (alike[n], -n), default=number)
        if alike.get(twin, 0) >= NEAR:
            near, one = "" if alike[twin] == 1 else "nearly ", questions[twin]
            found[number] = f"{near}the same in split '{splits[twin]}' ({one.path}:{one.line})"
    return found


def find_ambiguous(questions: Sequence[Question]) -> Found:
    """Questions in equal words that have no answer in common."""
    groups = defaultdict[tuple[str, ...], list[int]](list)
    for number, one in enumerate(questions):
        groups[tuple(tokenize(one.question))].append(number)
    answers = [{tuple(tokenize(answer)) for answer in one.answers} for one in questions]
    return {
        number: f"also at {questions[other].path}:{questions[other].line}, with another answer"
        for group in groups.values()
        for number in group
        for other in group
        if answers[number] and answers[other] and answers[number].isdisjoint(answers[other])
    }


def _content(text: str) -> str:
    return " ".join(word for word in tokenize(text) if word not in _ARTICLES)
