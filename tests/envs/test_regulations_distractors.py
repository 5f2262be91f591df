"""What leads a reader of `regulations` astray, and that one answer stays the only right one.

Questions whose words fit another article better (traps), sentences beside a rule that state nothing
or a value of something else, and exceptions that are worded like rules.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest
from playing import env_of, mean, tasks_of

from searchrl.core.episode import Passage, Task
from searchrl.envs.regulations.questions import LOOKUP, TWO_HOP, Draft, draft_task
from searchrl.envs.regulations.world.school import School
from searchrl.envs.regulations.world.searching import Finder

pytestmark = pytest.mark.thorough

NUM_SCHOOLS = 40


@cache
def schools(split: str) -> list[School]:
    return [env_of("normal").school(split, number) for number in range(NUM_SCHOOLS)]


def drafts(trap_share: float) -> list[tuple[School, Draft]]:
    """The same tasks, with a question of another wording wherever one misleads more."""
    trapping = [replace(school, trap_share=trap_share) for school in schools("test")[:20]]
    kinds = [(kind, ordinal) for kind in (LOOKUP, TWO_HOP) for ordinal in range(8)]
    return [
        (school, draft_task(school, kind, ordinal))
        for school in trapping
        for kind, ordinal in kinds
    ]


def test_the_share_of_traps_decides_how_much_questions_mislead() -> None:
    degrees, golds = {}, {}
    for share in (0.0, 1.0):
        made = drafts(share)
        degrees[share] = [
            school.finder.misleads(draft.question.query, draft.gold_ids[0])
            for school, draft in made
        ]
        golds[share] = [(draft.abouts[0].partition("@")[0], draft.bridge) for _, draft in made]
    assert golds[0.0] == golds[1.0], "only the wording differs"
    assert min(degrees[0.0] + degrees[1.0]) >= 0.0, "the article is among the three results"
    assert mean(degree > 1 for degree in degrees[0.0]) <= 0.35
    assert mean(degree > 1 for degree in degrees[1.0]) >= 0.6
    assert mean(degrees[1.0]) >= 1.4 * mean(degrees[0.0])


def test_a_finder_says_how_much_a_query_misleads() -> None:
    finder = Finder(
        [
            Passage("chess", "Mara Oakley runs the chess club in winter.", "Chess"),
            Passage("choir", "The choir sings in the hall, and the chess players listen.", "Choir"),
            Passage("pool", "Swimming costs £3.", "Pool"),
            *(Passage(f"other-{n}", f"Whoever is late waits {n} days.", "Late") for n in range(9)),
        ]
    )
    assert finder.misleads("Swimming", "pool") == 0.0, "no other article has the word"
    assert 0.0 < finder.misleads("chess", "chess") < 1.0 < finder.misleads("chess", "choir")
    assert finder.misleads("Swimming", "chess") == -1.0, "the article is not found"
    assert finder.misleads("zebra", "pool") == finder.misleads("zebra") == -1.0
    # Without an article: how well the best one fits.
    assert finder.misleads("chess club winter") > finder.misleads("chess") > 0.0


def right_articles(task: Task) -> list[str]:
    """The articles whose statements, in their own words, answer the task."""
    asked = task.meta["abouts"][-1]
    stated = env_of("normal").statements(task)
    return [key for key, ones in stated.items() for one in ones if one.about == asked]


def test_one_article_alone_states_what_is_asked_and_the_answer_once() -> None:
    twice = []
    for task in (task for task in tasks_of("normal") if task.gold_ids):
        assert right_articles(task) == [task.gold_ids[-1]]
        text = {p.id: p.text for p in env_of("normal").passages(task)[1]}[task.gold_ids[-1]]
        stated = env_of("normal").statements(task)[task.gold_ids[-1]]
        # Two rules that share an article have the same value now and then.
        count = sum(one.value.bare == task.answers[0] for one in stated)
        gold = re.escape(task.answers[0])
        assert len(re.findall(rf"(?<![\w£]){gold}(?!\w)", text)) == count, (task.answers, text)
        twice.append(count > 1)
    assert mean(twice) <= 0.02
