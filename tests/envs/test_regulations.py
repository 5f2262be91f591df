"""The `regulations` world: determinism, disjoint schools, the mix of tasks, searchability."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest
from playing import make_env, mean, play, search

import searchrl  # noqa: F401  # registers the Gymnasium ids
from searchrl.core.episode import Task
from searchrl.envs.regulations import TASK_KINDS, RegulationsEnv, make_expert
from searchrl.envs.regulations.names import ValueKind, draw_value, load_names, school_names
from searchrl.envs.regulations.school import (
    NUM_SCHOOLS,
    Article,
    Difficulty,
    School,
    make_school,
    words_of,
)
from searchrl.envs.regulations.wordings import Subject, load_families, load_topics
from searchrl.envs.word_lists import load_word_list
from searchrl.errors import ConfigError, DataError

NUM_TEST_TASKS = 1000
SCHOOLS = range(40)


@pytest.fixture(scope="module")
def env() -> RegulationsEnv:
    return make_env()


@pytest.fixture(scope="module")
def tasks(env: RegulationsEnv) -> list[Task]:
    return [env.make_task("test", index) for index in range(NUM_TEST_TASKS)]


def articles_of(school: School) -> list[Article]:
    """All articles that state something."""
    chains = [article for link in school.links for article in (link.link, link.entity_article)]
    return [article for _, article in school.rules] + chains


# The world.
def test_tasks_depend_on_nothing_but_split_index_and_world_seed(env: RegulationsEnv) -> None:
    backwards = [make_env().make_task("train", i) for i in reversed(range(60))]
    assert [env.make_task("train", i) for i in range(60)] == backwards[::-1]
    other_world = make_env(world_seed=1)
    assert env.make_task("train", 0) != other_world.make_task("train", 0)
    assert env.make_task("train", 0) != env.make_task("test", 0)


def test_handbooks_have_at_least_forty_short_articles() -> None:
    for number in SCHOOLS:
        for difficulty in Difficulty:
            school = make_school(0, "test", number, difficulty)
            assert 44 <= len(school.passages) <= 54 and len(school.rules) >= 12
            assert len({p.id for p in school.passages}) == len(school.passages)
            assert max(len(f"{p.title} {p.text}".split()) for p in school.passages) <= 25
            assert not any(set("{}[]<>") & set(p.title + p.text) for p in school.passages)


def test_every_article_and_question_has_four_wordings() -> None:
    for topic in load_topics():
        assert len({(a.title, a.text) for a in topic.articles}) >= 4, topic.key
        assert len({q.marked for q in topic.questions}) >= 4, topic.key
    for family in load_families():
        wordings = (
            family.links, family.entities, family.link_questions, family.entity_questions,
            family.hop_questions,
        )  # fmt: skip
        assert all(len(set(group)) >= 4 for group in wordings), family.key
        assert all(len(subject.names) >= 2 for subject in family.subjects), family.key
    assert len(load_families()) >= 3


def test_a_question_can_be_asked_for_every_wording_of_an_article() -> None:
    for topic in load_topics():
        queries = [words_of(question.fill().query) for question in topic.questions]
        for article in topic.articles:
            words = words_of(" ".join(article.fill(v="x")))
            assert any(query & words for query in queries), (topic.key, article)


def test_schools_of_different_splits_share_no_name_and_no_handbook(env: RegulationsEnv) -> None:
    names = school_names(0)
    assert len(set(names)) == len(names) >= sum(NUM_SCHOOLS.values())
    assert NUM_SCHOOLS["train"] >= 4000 and min(NUM_SCHOOLS.values()) >= 200
    places: list[str] = []
    for split, count in NUM_SCHOOLS.items():
        numbers = {*range(0, count, 16), count - 1}
        places += {env.school(split, n).name.split()[0] for n in numbers}
    assert len(set(places)) == len(places)
    books = [env.school(split, 3).passages for split in NUM_SCHOOLS]
    assert books[0] != books[1] != books[2] != books[0]


def test_values_come_from_wide_domains() -> None:
    rng = Random(0)
    assert min(len(load_names().first_names), len(load_names().last_names)) >= 60
    for kind in ValueKind:
        drawn = Counter(draw_value(kind, rng) for _ in range(2000))
        assert len(drawn) >= 60, kind
        assert max(drawn.values()) <= 2000 * 0.03, (kind, drawn.most_common(1))


def test_values_stand_in_their_article_and_names_are_unambiguous(env: RegulationsEnv) -> None:
    for number in SCHOOLS:
        school = env.school("test", number)
        stated = Counter(article.about for article in articles_of(school))
        assert max(stated.values()) == 1
        for article in articles_of(school):
            assert article.value.casefold() in article.passage.text.casefold()
        entities = [link.entity for link in school.links]
        words = [w for entity in entities for w in entity.split() if w not in ("form", "Fund")]
        places = {"House", "Hall", "Lodge", "Wing"}
        telling = [word for word in words if word not in places]
        assert len(telling) == len(set(telling))


GOLDEN = {
    ("train", "easy"): "f0a89171e5a696dd",
    ("train", "normal"): "cc5df0c293ebf6e9",
    ("train", "hard"): "d3450755d41ab7cb",
    ("test", "easy"): "cf87f6c85cb81603",
    ("test", "normal"): "c1506820070af657",
    ("test", "hard"): "cfd58fdee9e208b6",
}
"""Fingerprints of tasks, handbooks and expert turns: the figures of older runs depend on them.

Each run of the tests has another hash seed, so an order that depends on it fails here too.
"""


@pytest.mark.parametrize(("split", "difficulty"), GOLDEN)
def test_the_world_is_the_one_of_all_earlier_runs(split: str, difficulty: str) -> None:
    env = make_env(difficulty=difficulty)
    seen = hashlib.sha256()
    for number in range(20):
        game = play(env, make_expert, split=split, index=number * 113)
        task = game.task
        passages = [(p.id, p.title, p.text) for p in env.passages(task)[1]]
        known = [task.id, task.answers, task.kind, task.gold_ids, task.meta, passages]
        seen.update(json.dumps([known, game.observations, game.turns]).encode())
    assert seen.hexdigest()[:16] == GOLDEN[split, difficulty]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[{"key": "x", "names": ["y"], "nmaes": []}]', "0.nmaes: Unexpected keyword"),
        ('[{"key": "x", "names": [7]}]', "0.names.0: Input should be a valid string"),
        ('[{"key": "x"}]', "0.names: Field required"),
        ("[", "Invalid JSON"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_damaged_word_list_is_refused_with_the_place(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    path = tmp_path / "chains.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"(?s)chains\.json: .*install searchrl again") as caught:
        load_word_list(tuple[Subject, ...], path)
    assert problem in str(caught.value)


# The tasks.
def test_mix_has_its_shares_in_any_stretch(env: RegulationsEnv) -> None:
    for start in (0, 777, 20000):
        kinds = Counter(env.kind_of("train", start + i) for i in range(300))
        assert kinds["lookup"] == pytest.approx(150, abs=4)
        assert kinds["two_hop"] == pytest.approx(90, abs=4)
        assert kinds["not_regulated"] == pytest.approx(60, abs=4)
    assert set(TASK_KINDS) == set(kinds)


def test_mix_is_a_setting() -> None:
    only = make_env(mix={"two_hop": 2})
    assert {only.make_task("train", i).kind for i in range(50)} == {"two_hop"}
    both = make_env(mix={"lookup": 1, "not_regulated": 3})
    kinds = Counter(both.kind_of("test", i) for i in range(400))
    assert kinds["not_regulated"] == pytest.approx(300, abs=4) and kinds["two_hop"] == 0
    for mix, message in (
        ({"twohop": 1.0}, "Did you mean 'two_hop'"),
        ({"lookup": -1.0}, "must be ≥ 0"),
        ({}, "positive"),
        ({"lookup": float("nan")}, "must be ≥ 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_env(mix=mix)


def test_a_school_is_never_asked_the_same_twice(env: RegulationsEnv) -> None:
    for number in range(12):
        indices = range(number, env.num_tasks("test"), NUM_SCHOOLS["test"])
        asked = [env.make_task("test", i) for i in indices]
        assert len({(t.kind, t.meta["about"]) for t in asked}) == len(asked) >= 8
        assert {t.meta["school"] for t in asked} == {env.school("test", number).name}


def test_gold_answers_are_short_and_verbatim_in_the_gold_article(
    env: RegulationsEnv, tasks: list[Task]
) -> None:
    for task in tasks:
        if task.kind == "not_regulated":
            assert task.answers == ("not regulated",) and not task.gold_ids
            continue
        texts = {p.id: p.text for p in env.passages(task)[1]}
        assert task.answers[0] in texts[task.gold_ids[-1]]
        assert len(task.answers[0]) <= 20 and len(task.answers[0].split()) <= 2
        assert len(task.gold_ids) == (2 if task.kind == "two_hop" else 1)


def test_two_hop_questions_do_not_name_the_bridge(tasks: list[Task]) -> None:
    chains = Counter()
    for task in (t for t in tasks if t.kind == "two_hop"):
        assert not words_of(task.meta["bridge"]) - {"form", "fund", "house", "hall"} & words_of(
            task.question
        )
        assert task.meta["bridge"] in task.meta["queries"][1]
        chains[task.meta["about"].split(":")[0]] += 1
    assert len(chains) >= 3 and min(chains.values()) >= 20, chains


def test_no_article_answers_what_is_not_regulated(env: RegulationsEnv, tasks: list[Task]) -> None:
    shown = []
    for task in (t for t in tasks if t.kind == "not_regulated"):
        school = env.school("test", task.meta["school_number"])
        topic = task.meta["about"]
        assert not any(article.about.startswith(topic) for article in articles_of(school))
        if ":" in topic:
            names = {s.key: s.names for f in load_families() for s in f.subjects}
            for name in names[topic.split(":")[1]]:
                texts = " ".join(f"{p.title} {p.text}" for p in school.passages).casefold()
                assert not re.search(rf"\b{name}\b", texts), (name, task)
        shown.append(len(search(env, task, task.meta["queries"])))
    assert mean(n > 0 for n in shown) >= 0.95, "silence is read, not inferred from no result"


def test_prompts_are_short_and_name_the_school(env: RegulationsEnv, tasks: list[Task]) -> None:
    for task in tasks[:200]:
        prompt = env.make_prompt(task)
        assert len(prompt.split()) <= 35
        assert task.meta["school"] in prompt and "not regulated" in prompt


# Searching.
def test_experts_query_finds_the_article_but_not_always_first(
    env: RegulationsEnv, tasks: list[Task]
) -> None:
    ranks: dict[str, list[int]] = defaultdict(list)
    for task in tasks:
        for hop, (gold, query) in enumerate(zip(task.gold_ids, task.meta["queries"], strict=False)):
            assert 1 <= len(query.split()) <= 4
            found = search(env, task, [query])
            ranks[f"{task.kind}/{hop}"].append(found.index(gold) + 1 if gold in found else 99)
    every = [rank for hop in ranks.values() for rank in hop]
    assert len(every) > 1000 and len(ranks) == 3
    assert 0.60 <= mean(rank == 1 for rank in every) <= 0.90
    assert mean(rank <= 3 for rank in every) >= 0.98
    assert all(mean(rank <= 3 for rank in hop) >= 0.98 for hop in ranks.values()), ranks


def test_a_thin_query_seldom_finds_it(env: RegulationsEnv, tasks: list[Task]) -> None:
    hits = []
    for task in (t for t in tasks if t.gold_ids):
        (word,) = task.meta["thin_query"].split()
        assert word.casefold() in words_of(task.question)
        hits.append(task.gold_ids[0] in search(env, task, [word]))
    assert mean(hits) <= 0.40


def test_one_search_is_not_enough_for_two_hops(env: RegulationsEnv, tasks: list[Task]) -> None:
    both = [
        task.gold_ids[1] in search(env, task, [query])
        for task in tasks
        if task.kind == "two_hop"
        for query in task.meta["queries"][:1]
    ]
    assert mean(both) <= 0.05


def test_the_best_constant_answer_per_template_is_worthless(
    env: RegulationsEnv, tasks: list[Task]
) -> None:
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for number in range(100):
        for slot in range(10):
            task = env.make_task("train", number + slot * NUM_SCHOOLS["train"])
            if task.gold_ids:
                seen[task.meta["template"]][task.answers[0]] += 1
    best = {template: answers.most_common(1)[0][0] for template, answers in seen.items()}
    regulated = [task for task in tasks if task.gold_ids]
    assert mean(task.meta["template"] in best for task in regulated) >= 0.9
    assert mean(best.get(t.meta["template"]) in t.answers for t in regulated) <= 0.05


# Difficulty.
@pytest.mark.parametrize("name", ["easy", "hard"])
def test_difficulty_changes_the_handbook_and_stays_solvable(name: str) -> None:
    env = make_env(difficulty=name)
    games = [play(env, make_expert, split="test", index=i) for i in range(120)]
    assert mean(game.reward for game in games) >= 0.95
    about = [a for n in range(5) for a in env.school("test", n).passages]
    assert about != [a for n in range(5) for a in make_env().school("test", n).passages]


def test_unknown_difficulty_names_the_levels() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'hard'"):
        make_env(difficulty="hrd")
