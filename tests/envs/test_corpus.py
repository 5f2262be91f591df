"""The corpus environment: Gymnasium conformance, splits, data faults, the scripted policy."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import PROTOCOL, Played, play

from searchrl import make_env
from searchrl.core.episode import SEARCH
from searchrl.data import dataset
from searchrl.data.dataset import split_questions
from searchrl.data.questions import Question
from searchrl.envs.corpus import CorpusEnv
from searchrl.envs.reading import names_in
from searchrl.envs.scripts import MAX_QUERY_BYTES, fit_query, make_expert
from searchrl.errors import ConfigError, DataError
from searchrl.retrieval.bm25 import BM25Retriever


def make_corpus(**settings: Any) -> CorpusEnv:
    return CorpusEnv(**{"protocol": PROTOCOL, "retriever": BM25Retriever} | settings)


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Ten questions, each answered by a passage of its own."""
    rows = [{"id": f"q{i}", "question": f"who is zz{i}?", "answer": str(i)} for i in range(10)]
    questions = (row | {"supporting_ids": [i]} for i, row in enumerate(rows))
    passages = ({"id": i, "text": f"zz{i} is number {i}"} for i in range(10))
    paths = tmp_path / "q.jsonl", tmp_path / "c.jsonl"
    return {"questions": write(paths[0], *questions), "corpus": write(paths[1], *passages)}


def play_all(env: CorpusEnv, split: str) -> list[Played]:
    return [play(env, make_expert, split=split, index=i) for i in range(env.num_tasks(split))]


def test_plain_gymnasium_loop_on_the_demo() -> None:
    env = gymnasium.make("searchrl/Corpus-v0")
    prompt, info = env.reset(seed=3)
    assert prompt == info["task"].question
    observation, *_, info = env.step("<think>a</think><search>old bridge arches</search>")
    assert "seven arches" in observation and info["passages"][0].id == "old-bridge"


def test_tasks_are_pure_functions_of_split_and_index(files: dict[str, str]) -> None:
    first, second = make_corpus(**files), make_corpus(**files, world_seed=9)
    for split in ("train", "test"):
        for index in reversed(range(first.num_tasks(split))):
            task = first.make_task(split, index)
            assert second.make_task(split, index) == task
            assert (task.split, task.index, task.env) == (split, index, "corpus")
    runs = [[env.reset(seed=s)[1]["task"].id for s in range(8)] for env in (first, second)]
    assert runs[0] == runs[1] and len(set(runs[0])) > 1


@given(st.lists(st.text(max_size=6), unique=True, max_size=40), st.floats(0, 1))
def test_split_is_disjoint_complete_and_never_one_sided(ids: list[str], frac: float) -> None:
    questions = [Question(i, f"question {n}?", ("x",)) for n, i in enumerate(ids)]
    train, test = split_questions(questions, frac)
    assert {q.id for q in train} | {q.id for q in test} == set(ids)
    assert not {q.id for q in train} & {q.id for q in test}
    if 0 < frac < 1 and len(ids) > 1:
        assert train and test
    if frac in (0, 1) and ids:
        assert not (test if frac == 0 else train)


def test_split_has_the_stated_share_and_does_not_move_when_questions_are_added() -> None:
    large = [Question(f"q{i}", f"question {i}?", ("x",)) for i in range(4000)]
    small = large[:1000]
    train, test = split_questions(small, 0.2)
    assert 160 <= len(test) <= 240
    assert set(test) == set(split_questions(large, 0.2)[1]) & set(small)
    assert [q.id for q in train] == [q.id for q in small if q in train]


def test_one_question_under_two_ids_is_not_in_train_and_test() -> None:
    rows = [Question(f"id{i}", f"Question  {i % 50}?" if i % 2 else f"question {i % 50}?", ("x",))
            for i in range(200)]  # fmt: skip
    train, test = split_questions(rows, 0.5)
    plain = [{" ".join(q.question.lower().split()) for q in part} for part in (train, test)]
    assert train and test
    assert not plain[0] & plain[1]


def test_explicit_test_questions(files: dict[str, str], tmp_path: Path) -> None:
    held_out = write(tmp_path / "t.jsonl", {"id": "q0", "question": "other?", "answer": "y"})
    env = make_corpus(**files, test_questions=held_out)
    assert (env.num_tasks("train"), env.num_tasks("test")) == (10, 1)
    assert env.make_task("test", 0).answers == ("y",)


def test_test_question_that_is_trained_on_is_refused(files: dict[str, str], tmp_path: Path) -> None:
    row = {"id": "new", "question": " Who is ZZ3?", "answer": "3"}
    held_out = write(tmp_path / "t.jsonl", row)
    with pytest.raises(DataError, match=r"t.jsonl:1: this test question is also a training"):
        make_corpus(**files, test_questions=held_out)


def test_empty_split_says_how_to_fill_it(files: dict[str, str]) -> None:
    env = make_corpus(**files, test_frac=0)
    assert env.splits == ("train",)
    with pytest.raises(ConfigError, match="no question is in split 'test'. Change env.test_frac"):
        env.num_tasks("test")
    only_test = make_corpus(**files, test_frac=1)
    assert only_test.reset(seed=0)[1]["task"].split == "test"
    with pytest.raises(ConfigError, match="has no split 'dev'"):
        env.reset(options={"split": "dev"})


@pytest.mark.parametrize(("given", "lacking"), [("corpus", "questions"), ("questions", "corpus")])
def test_one_of_questions_and_corpus_alone_says_what_is_missing(
    files: dict[str, str], given: str, lacking: str
) -> None:
    with pytest.raises(ConfigError, match=f"'{given}'.*--set env.{lacking}=PATH"):
        make_corpus(**{given: files[given]})


def test_faults_of_all_files_come_in_one_error(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"id": 1}\nnonsense\n')
    corpus = tmp_path / "c.jsonl.gz"
    corpus.write_bytes(gzip.compress(b'{"id": "a"}\n{"text": "x"}\n'))
    with pytest.raises(DataError) as caught:
        make_corpus(questions=str(questions), corpus=str(corpus), test_questions="none.jsonl")
    places = ["q.jsonl:1:", "q.jsonl:2:", "c.jsonl.gz:1:", "c.jsonl.gz:2:"]
    assert all(place in str(caught.value) for place in [*places, "none.jsonl: no such file"])


def test_gold_id_that_names_no_passage_is_a_fault(files: dict[str, str], tmp_path: Path) -> None:
    row = {"id": "m", "question": "more?", "answer": "m", "supporting_ids": [3, 77]}
    more = write(tmp_path / "more.jsonl", row)
    with pytest.raises(DataError, match=r'more.jsonl:1: supporting_ids \["77"\] name no passage'):
        make_corpus(**files | {"questions": more})


def test_files_are_read_once_for_many_instances_and_again_when_they_change(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = dataset.load_corpus
    monkeypatch.setattr(dataset, "load_corpus", lambda *args: calls.append(args) or real(*args))
    first = make_corpus(**files)
    for _ in range(5):
        make_corpus(**files)
    assert len(calls) == 1
    path = Path(files["corpus"])
    path.write_text(path.read_text() + '{"id": "new", "text": "zz99"}\n')
    os.utime(path, ns=(1, 1))
    changed = make_corpus(**files)
    task = first.make_task("train", 0)
    assert len(calls) == 2
    assert len(changed.passages(task)[1]) == len(first.passages(task)[1]) + 1
    assert changed.passages(task)[0] != first.passages(task)[0]


def test_demo_is_sound() -> None:
    env = make_corpus()
    tasks = [env.make_task(s, i) for s in env.splits for i in range(env.num_tasks(s))]
    texts = {p.id: f"{p.title} {p.text}".casefold() for p in env.passages(tasks[0])[1]}
    assert len(texts) >= 30 and len(tasks) >= 24
    assert sum(task.kind == "two_hop" for task in tasks) >= 8
    for task in tasks:
        evidence = " ".join(texts[i] for i in task.gold_ids)
        assert any(a.casefold() in evidence for a in task.answers), task.id
        assert len(task.gold_ids) == (2 if task.kind == "two_hop" else 1), task.id
        if task.kind == "two_hop":  # the first passage alone must not answer it
            first = texts[task.gold_ids[0]].split()
            assert not any(a.casefold() in first for a in task.answers), task.id


def test_expert_finds_all_evidence_of_the_demo_and_answers() -> None:
    env = make_corpus()
    for played in [p for split in env.splits for p in play_all(env, split)]:
        assert played.reward == 1.0 and played.signals == {"gold_shown": 1.0}
        assert PROTOCOL.format_score(played.turns) == 1.0
        assert 1 <= sum(action.kind == SEARCH for action in played.actions) <= 3


def test_names_and_queries() -> None:
    text = "In Lindry, the Bank of the Four Rivers, led by Ünal O'Neil, read Who's Who."
    names = ["Lindry", "Bank of the Four Rivers", "Ünal O'Neil", "Who's Who"]
    assert names_in(text) == names
    assert names_in("Berlin is in Germany", besides="where is berlin?") == ["Germany"]
    assert names_in("没有名字") == [] and fit_query([]) == ""
    assert fit_query(["a  b\nc", "d"]) == "a b c d"
    for long in ("word " * 500, "字" * 500):
        assert 0 < len(fit_query([long]).encode()) <= MAX_QUERY_BYTES


@pytest.mark.parametrize(
    "setting", [{"topk": 0}, {"max_turns": 0}, {"render_mode": "human"}, {"test_frac": 1.5}]
)
def test_settings_out_of_range_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"'corpus': cannot use {next(iter(setting))}"):
        make_env("corpus", **setting)
