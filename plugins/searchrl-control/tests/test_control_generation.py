"""Made-up questions, what they must not give away, and difficulty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control_toy import PASSAGES, QUESTIONS, make_library
from searchrl_control.collections.judged import read_judged
from searchrl_control.collections.written import (
    Kind,
    Leakage,
    TemplateWriter,
    model_writer,
    save_questions,
    write_questions,
)
from searchrl_control.environment.measures import Difficulty, difficulty_of, order_by
from searchrl_retrieval.evaluation.collection import Judged

from searchrl import ConfigError

E, M, H = Difficulty.EASY, Difficulty.MEDIUM, Difficulty.HARD


@pytest.mark.parametrize(
    ("question", "place", "said"),
    [
        ("which place was dug by Ada Quill", 0, ""),
        ("harbour of Tolmere was dug by Ada Quill, is it?", 0, "copies 6 words in a row"),
        ("Tolmere was dug by Ada, is it?", 0, ""),
        ("zebra salt: where it does come from", 0, "nearly a test question"),
        ("zebra quagga salt: where it does come from", 0, ""),
        ("…", 0, "no word"),
        ("old fish", 4, "answers a test question"),
        ("who was Ada Quill then", 1, "names the title"),
        ("who was Quill, Ada?", 1, ""),
    ],
)
def test_a_question_that_gives_itself_away_is_found(question: str, place: int, said: str) -> None:
    leakage = Leakage([Judged("q", "where does salt come from", {"salt": 1, "dots": 0})])
    fault = leakage.find_fault(question, [PASSAGES[place]])
    assert (said in fault) if said else not fault


def test_template_questions_of_all_kinds_do_not_leak_and_find_their_passages_partly() -> None:
    library = make_library()
    test = [Judged(name, text, {"salt": 1}) for name, (text, _) in QUESTIONS.items()]
    leakage, write = Leakage(test), TemplateWriter(library)
    made = write_questions(library, test, 12, [*Kind], write, 3)
    good = [one for one in made if not one.reason]
    assert {one.kind for one in good} == set(Kind)
    by_id = {passage.id: passage for passage in PASSAGES}
    for one in good:
        sources = [by_id[name] for name in one.sources]
        assert not leakage.find_fault(one.text, sources) and "salt" not in one.sources
        assert len(sources) == (2 if one.kind is Kind.MULTI else 1)
    assert made == write_questions(library, test, 12, [*Kind], write, 3)
    assert made != write_questions(library, test, 12, [*Kind], write, 4)


def test_two_passages_belong_together_where_one_names_the_other() -> None:
    library = make_library()
    shown: list[tuple[str, ...]] = []

    def write(kind: Kind, passages: Any, rng: Any) -> str:
        shown.append(tuple(passage.id for passage in passages))
        return "who loved maps"

    write_questions(library, [], 40, [Kind.MULTI], write, 0)
    assert ("harbour", "quill") in shown
    assert all(len(set(pair)) == 2 for pair in shown)


def test_a_model_sees_the_passages_and_the_rules() -> None:
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return "Query: who keeps bees?\nThanks"

    made = write_questions(make_library(), [], 3, [*Kind], model_writer(ask), 0)
    assert {one.text for one in made} == {"who keeps bees?"}
    assert all("Do not name a title" in prompt for prompt in prompts)
    assert [prompt.count("Document: ") for prompt in prompts] == [1, 2, 2]


def test_nothing_may_be_used_if_every_passage_answers_a_test_question() -> None:
    library, test = make_library(), [Judged("q", "?", {passage.id: 1 for passage in PASSAGES})]
    with pytest.raises(ConfigError, match="every passage"):
        write_questions(library, test, 1, [*Kind], TemplateWriter(library), 0)


def test_a_batch_is_written_as_a_folder_that_is_read_again(tmp_path: Path) -> None:
    library = make_library([p for p in PASSAGES if p.id != "dots"])
    test = [Judged("q", "what keeps fish", {"salt": 2})]
    made = write_questions(library, test, 6, [*Kind], TemplateWriter(library), 1)
    save_questions(made, library, test, tmp_path)
    found = read_judged(tmp_path).questions
    assert {q.id: (q.text, q.sources) for q in made if not q.reason} == {
        q.id: (q.text, tuple(q.qrels)) for q in found["train"]
    }
    assert [(q.id, q.text, q.qrels) for q in found["test"]] == [
        ("q", "what keeps fish", {"salt": 2})
    ]


@pytest.mark.parametrize(
    ("ranking", "qrels", "level"),
    [
        (["a"], {"a": 1}, E),
        (["b"], {"a": 1}, H),
        (["a"], {"a": 1, "b": 1}, M),
        (["a"], {"a": 1, "b": 1, "c": 1}, M),
        (["a", "b"], {"a": 1, "b": 1, "c": 1}, E),
        ([*"xxxxxxxxx", *"0123456789", "a"], {"a": 1}, H),
        (["a"], {"a": 1, "b": 1, "c": 1, "d": 1}, H),
    ],
)
def test_levels_by_hand(ranking: list[str], qrels: dict[str, int], level: Difficulty) -> None:
    assert difficulty_of(ranking, qrels) is level


def test_a_level_as_the_order_of_tasks() -> None:
    levels = [E, H, M, H, *[E] * 96]
    assert order_by("hard", levels, "key") == [1, 3]
    mixed = order_by("mostly_hard", levels, "key")
    assert mixed == order_by("mostly_hard", levels, "key") and len(mixed) == 100
    assert sum(levels[number] is H for number in mixed) == 69
    with pytest.raises(ConfigError, match="no question of this collection is hard"):
        order_by("hard", [E], "key")


def test_where_nothing_is_hard_the_hardest_stand_in() -> None:
    mixed = order_by("mostly_hard", [*[E] * 99, M], "key")
    assert mixed.count(99) / 100 == pytest.approx(0.7, abs=0.12)
    assert len(order_by("mostly_hard", [E, E], "key")) == 2
