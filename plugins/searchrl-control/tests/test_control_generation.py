"""Made-up questions, what they must not give away, difficulty and curriculum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_toy import PASSAGES, QUESTIONS, make_library
from searchrl_control.collections.judged import read_judged
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.generation.curriculum import Curriculum, order_by
from searchrl_control.generation.difficulty import Difficulty, difficulty_of
from searchrl_control.generation.leakage import Leakage
from searchrl_control.generation.written import (
    Kind,
    model_writer,
    save_questions,
    write_questions,
)

from searchrl import ConfigError

E, M, H = Difficulty.EASY, Difficulty.MEDIUM, Difficulty.HARD
TOLMERE = PASSAGES[0]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("which place was dug by Ada Quill", ""),
        ("harbour of Tolmere was dug by Ada Quill, is it?", "copies 6 words in a row"),
        ("zebra salt: where it does come from", "nearly the test question"),
        ("…", "no word"),
    ],
)
def test_a_question_that_gives_itself_away_is_found(question: str, said: str) -> None:
    leakage = Leakage(("where does salt come from",), frozenset({"salt"}))
    fault = leakage.find_fault(question, [TOLMERE])
    assert (said in fault) if said else not fault


def test_a_title_of_several_words_and_a_passage_of_the_test_are_found() -> None:
    leakage = Leakage((), frozenset({"salt"}))
    assert "answers a test question" in leakage.find_fault("old fish", [PASSAGES[4]])
    assert "names the title" in leakage.find_fault("who was Ada Quill then", [PASSAGES[1]])
    assert not leakage.find_fault("who was Quill, Ada?", [PASSAGES[1]])


def test_template_questions_of_all_kinds_do_not_leak_and_find_their_passages_partly() -> None:
    library = make_library()
    leakage = Leakage(tuple(text for text, _ in QUESTIONS.values()), frozenset({"salt"}))
    batch = write_questions(library, 12, leakage=leakage, seed=3)
    assert {question.kind for question in batch.questions} == set(Kind)
    by_id = {passage.id: passage for passage in PASSAGES}
    for question in batch.questions:
        sources = [by_id[name] for name in question.sources]
        assert not leakage.find_fault(question.text, sources) and "salt" not in question.sources
        assert len(sources) == (2 if question.kind is Kind.MULTI else 1)
    assert batch == write_questions(library, 12, leakage=leakage, seed=3)
    assert batch.questions != write_questions(library, 12, leakage=leakage, seed=4).questions


def test_two_passages_belong_together_where_one_names_the_other() -> None:
    library = make_library()
    shown: list[tuple[str, ...]] = []

    def write(kind: Kind, passages: Any, rng: Any) -> str:
        shown.append(tuple(passage.id for passage in passages))
        return "who loved maps"

    write_questions(library, 40, kinds=[Kind.MULTI], writer=write)
    assert ("harbour", "quill") in shown
    assert all(len(set(pair)) == 2 for pair in shown)


def test_a_question_that_leaks_is_left_out_and_counted() -> None:
    library = make_library()
    writer = model_writer(lambda prompt: "where does salt come from")
    leakage = Leakage(("where does salt come from",))
    batch = write_questions(library, 3, writer=writer, leakage=leakage, tries=2)
    assert not batch.questions and sum(batch.refused.values()) == 6
    assert list(batch.refused) == ["it is nearly"]


def test_a_model_sees_the_passages_and_the_rules() -> None:
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return "Query: who keeps bees?\nThanks"

    batch = write_questions(make_library(), 3, writer=model_writer(ask))
    assert {question.text for question in batch.questions} == {"who keeps bees?"}
    assert all("Do not name a title" in prompt for prompt in prompts)
    assert [prompt.count("Document: ") for prompt in prompts] == [1, 2, 2]


def test_nothing_may_be_used_if_every_passage_answers_a_test_question() -> None:
    leakage = Leakage((), frozenset(passage.id for passage in PASSAGES))
    with pytest.raises(ValueError, match="every passage"):
        write_questions(make_library(), 1, leakage=leakage)


def test_a_batch_is_written_as_a_folder_that_is_read_again(tmp_path: Path) -> None:
    library = make_library([p for p in PASSAGES if p.id != "dots"])
    batch = write_questions(library, 6, seed=1)
    save_questions(batch, library, tmp_path)
    found = read_judged("made", tmp_path)
    everyone = {q.id: q for split in found.questions.values() for q in split}
    assert {q.id: (q.text, q.sources) for q in batch.questions} == {
        name: (q.text, tuple(q.qrels)) for name, q in everyone.items()
    }


@pytest.mark.parametrize(
    ("ranking", "qrels", "level"),
    [
        (["a"], {"a": 1}, E),
        (["b"], {"a": 1}, H),
        (["a"], {"a": 1, "b": 1}, M),
        (["a", "b"], {"a": 1, "b": 1, "c": 1}, E),
        ([*"xxxxxxxxx", *"0123456789", "a"], {"a": 1}, H),
        (["a"], {"a": 1, "b": 1, "c": 1, "d": 1}, H),
    ],
)
def test_levels_by_hand(ranking: list[str], qrels: dict[str, int], level: Difficulty) -> None:
    assert difficulty_of(ranking, qrels) is level


def test_hard_questions_come_with_p_7_after_a_thousand_episodes() -> None:
    levels = [H, *[E] * 9]
    rng = np.random.default_rng(0)
    draw = Curriculum().draw
    before = [draw(rng, levels, episode) for episode in range(1000)]
    after = [draw(rng, levels, 1000) for _ in range(4000)]
    assert before.count(0) / 1000 == pytest.approx(0.1, abs=0.03)
    assert after.count(0) / 4000 == pytest.approx(0.7 + 0.3 * 0.1, abs=0.03)
    assert {draw(rng, [E, E], 5000) for _ in range(50)} == {0, 1}


def test_a_level_as_the_order_of_tasks() -> None:
    levels = [E, H, M, H, *[E] * 96]
    assert order_by("any", levels, "key") == list(range(100))
    assert order_by("hard", levels, "key") == [1, 3]
    mixed = order_by("mostly_hard", levels, "key")
    assert mixed == order_by("mostly_hard", levels, "key") and len(mixed) == 100
    assert sum(levels[number] is H for number in mixed) / 100 == pytest.approx(0.7, abs=0.12)
    with pytest.raises(ConfigError, match="no question of this collection is hard"):
        order_by("hard", [E], "key")


def test_where_nothing_is_hard_the_hardest_stand_in() -> None:
    mixed = order_by("mostly_hard", [*[E] * 99, M], "key")
    assert mixed.count(99) / 100 == pytest.approx(0.7, abs=0.12)
    assert len(order_by("mostly_hard", [E, E], "key")) == 2


def test_the_environment_begins_the_curriculum_after_a_thousand(
    toy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = RetrievalControlEnv(**toy, curriculum=True)
    levels = {"q-salt": E, "q-quill": E, "q-hive": H}
    monkeypatch.setattr(env.world, "_levels", levels)
    env.reset(seed=0)

    def hard_share() -> float:
        drawn = [env.reset()[1]["task"].difficulty for _ in range(200)]
        return drawn.count("hard") / 200

    assert hard_share() == pytest.approx(1 / 3, abs=0.1)
    env._num_episodes = 1000
    assert hard_share() == pytest.approx(0.8, abs=0.1)
