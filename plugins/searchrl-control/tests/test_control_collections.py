"""Collections by name, who is training and who is test, and collections that are unlike ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from control_toy import PASSAGES, QUESTIONS, act_fixed, play, write_beir, write_toy
from searchrl_control.collections.judged import BEIR, draw_split, find_collection, read_judged
from searchrl_control.comparison.sequences import list_sequences, name_of, play_sequences
from searchrl_control.comparison.study import make_heuristic, play_greedily
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.settings import SETS, EnvSettings
from searchrl_control.environment.worlds import World
from searchrl_control.training.networks import space_of

from searchrl import DataError
from searchrl.contracts import Passage

IDS = [f"q{number}" for number in range(11)]


def test_a_draw_depends_on_the_ids_the_seed_and_the_share_alone() -> None:
    train, test = draw_split(IDS, seed=18)
    assert (train, test) == draw_split(reversed(IDS), seed=18)
    assert sorted(train + test) == sorted(IDS)
    assert train == ["q9", "q7", "q0", "q3", "q2"]  # what was drawn before anything was trained
    assert draw_split(IDS, seed=19)[0] != train
    assert len(draw_split(IDS, train_share=0.25)[0]) == 2


@pytest.mark.parametrize(
    ("ids", "share", "said"),
    [(["a"], 0.5, "at least one on either side"), (["a", "b"], 1.0, "at least one on either side")],
)
def test_a_split_with_an_empty_side_is_refused(ids: list[str], share: float, said: str) -> None:
    with pytest.raises(DataError, match=said):
        draw_split(ids, train_share=share)


def test_a_folder_with_both_splits_keeps_them(tmp_path: Path) -> None:
    found = read_judged(write_toy(tmp_path / "toy"))
    assert "drawn" not in " ".join(found.notes)
    assert [q.id for q in found.questions["train"]] == ["q-salt", "q-quill", "q-hive"]
    assert found.questions["test"][0].qrels == {"glass": 1, "lost": 1}
    assert len(found.passages) == len(PASSAGES) and "not in the corpus" in " ".join(found.notes)


def test_a_folder_with_one_split_is_drawn_from(tmp_path: Path) -> None:
    found = read_judged(write_toy(tmp_path / "toy", {"test": list(QUESTIONS)}))
    assert "drawn by env.split_seed" in " ".join(found.notes)
    assert [[q.id for q in found.questions[split]] for split in ("train", "test")] == [
        *draw_split(QUESTIONS)
    ]


def test_a_pool_of_questions_that_name_their_gold_is_drawn_from(tmp_path: Path) -> None:
    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in PASSAGES]
    asked = [
        {"id": name, "question": text, "golden_answers": ["x"], "supporting_ids": list(qrels)}
        for name, (text, qrels) in QUESTIONS.items()
        if "lost" not in qrels
    ]
    for name, lines in (("corpus", rows), ("questions", asked)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text, "utf-8")
    found = read_judged(tmp_path)
    assert [q.id for q in found.questions["train"]] == draw_split(row["id"] for row in asked)[0]
    everyone = [*found.questions["train"], *found.questions["test"]]
    assert {q.id: dict(q.qrels) for q in everyone} == {
        row["id"]: dict.fromkeys(row["supporting_ids"], 1) for row in asked
    }


def find(name: str, data: Path | None = None) -> Path:
    return find_collection(name, data, hub=False, cache=Path("nowhere"))


def test_a_name_is_a_path_a_folder_of_data_or_the_made_up_one(tmp_path: Path) -> None:
    folder = write_toy(tmp_path / "data" / "scifact")
    assert find(str(folder)) == folder
    assert find("scifact", tmp_path / "data") == folder
    demo = read_judged(find("demo"))
    assert len(demo.passages) == 72 and {len(of) for of in demo.questions.values()} == {36}


def test_a_missing_collection_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"env\.hub=true downloads nfcorpus"):
        find("nfcorpus", tmp_path)
    with pytest.raises(DataError, match="Did you mean 'scifact'"):
        find("scifcat")


class HubTable(list[dict[str, Any]]):
    """A table of the package `datasets` as far as it is used."""

    def to_json(self, path: Path) -> None:
        path.write_text("".join(json.dumps(row) + "\n" for row in self), "utf-8")

    def to_csv(self, path: Path, sep: str) -> None:
        lines = [sep.join(self[0]), *(sep.join(map(str, row.values())) for row in self)]
        path.write_text("\n".join(lines) + "\n", "utf-8")


class Hub:
    """The package `datasets` with the small collection."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def load_dataset(self, path: str, name: str = "", split: str = "") -> Any:
        self.asked.append((path, name, split))
        if path.endswith("-qrels"):
            rows = [
                {"query-id": q, "corpus-id": p, "score": grade}
                for q, (_, qrels) in QUESTIONS.items()
                for p, grade in qrels.items()
            ]
            parts = {"train": rows[:4], "validation": rows[:1], "test": rows[4:]}
            return {split: HubTable(part) for split, part in parts.items()}
        if name == "queries":
            asked = QUESTIONS.items()
            return HubTable({"_id": q, "title": "", "text": text} for q, (text, _) in asked)
        return HubTable({"_id": p.id, "title": p.title or None, "text": p.text} for p in PASSAGES)


@pytest.mark.parametrize("name", BEIR)
def test_a_collection_of_beir_is_downloaded_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub()
    monkeypatch.setitem(sys.modules, "datasets", hub)
    folder = find_collection(name, None, hub=True, cache=tmp_path)
    assert find_collection(name, None, hub=True, cache=tmp_path) == folder and len(hub.asked) == 3
    found = read_judged(folder)
    assert [q.id for q in found.questions["train"]] == ["q-salt", "q-quill"]
    assert {passage.id for passage in found.passages} == {passage.id for passage in PASSAGES}
    assert (folder / "qrels" / "validation.tsv").is_file()


def test_a_download_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> object:
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=refuse))
    with pytest.raises(DataError, match="could not be downloaded: ConnectionError: no network"):
        find_collection("fiqa", None, hub=True, cache=tmp_path)
    assert not list((tmp_path / "beir").iterdir())
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"ModuleNotFoundError.*searchrl-control\[hub\]"):
        find_collection("fiqa", None, hub=True, cache=tmp_path)


Split = Sequence[tuple[str, Mapping[str, int]]]

DOCS = [
    Passage("0", "salt comes from the sea"),
    Passage("1", "bees make honey in spring"),
    Passage("2", "the harbour of Tolmere is old"),
    Passage("3", "a market sells glass"),
]
TEXTS = {
    "100": "where does salt come from",
    "101": "who makes honey",
    "102": "zebra quagga",
    "103": "old harbour",
}
TRAIN: Split = [("100", {"0": 2, "3": 1}), ("101", {"1": 1})]
TEST: Split = [("102", {"3": 1}), ("103", {"2": 1})]
JUDGED = [*TRAIN, *TEST]


def of(docs: Sequence[Passage], **splits: Split) -> Callable[[Path], Path]:
    return lambda folder: write_beir(folder, docs, TEXTS, splits)


UNUSUAL: Mapping[str, tuple[Callable[[Path], Path], tuple[int, int]]] = {
    "only a test split, graded": (of(DOCS, test=JUDGED), (2, 2)),
    "only a validation split": (of(DOCS, dev=JUDGED), (2, 2)),
    "a test split beside validation": (of(DOCS, dev=TRAIN, test=JUDGED), (2, 2)),
    "passages without any text": (of([*DOCS, Passage("x", " ")], train=TRAIN, test=TEST), (2, 2)),
    "nothing relevant to some": (
        of(DOCS, train=[("100", {"0": 0}), TRAIN[1]], test=[("102", {"3": -1}), TEST[1]]),
        (1, 1),
    ),
    "nothing relevant to some, drawn": (of(DOCS, test=[("100", {"0": 0}), *JUDGED[1:]]), (1, 2)),
    "one passage": (
        of(DOCS[:1], train=[("100", {"0": 1})], test=[("101", {"0": 1}), ("102", {"0": 1})]),
        (1, 2),
    ),
    "a question of training is one of test": (
        of(DOCS, train=[*TRAIN, TEST[1]], test=TEST),
        (2, 2),
    ),
}


@pytest.mark.parametrize("name", list(UNUSUAL))
def test_it_opens_and_every_policy_plays_it(name: str, toy: dict[str, Any], tmp_path: Path) -> None:
    make, counts = UNUSUAL[name]
    folder = make(tmp_path / "odd")
    for actions in SETS:
        place = {**toy, "collection": str(folder)}
        env = RetrievalControlEnv(**place, actions=actions, max_steps=3)
        sequences = list_sequences(env.actions, 3)
        found = []
        for split in ("train", "test"):
            values = play_sequences(env.world, split, sequences)
            for sequence in sequences[::9]:
                episodes = play(env, split, act_fixed(env, sequence))
                told = {question: worth for question, worth, _ in episodes}
                assert told == values[name_of(env.actions, sequence)]
                assert all(0 <= value <= 1 for value in told.values())
            played, _ = play_greedily(make_heuristic(space_of(env)), {"odd": env}, split)
            found.append(len(played))
        assert tuple(found) == counts


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (of(DOCS, test=JUDGED[:1]), "cannot be split"),
        (of([Passage("1", "…")], test=[("100", {"1": 1}), ("101", {"1": 1})]),
         "no passage of it has a word"),
        (of(DOCS, train=TEST, test=TEST), "no training question, or no test question"),
        (of(DOCS, test=[("900", {"0": 1})]), "which is no query; nor is another"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_refused(
    make: Callable[[Path], Path], said: str, toy: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        RetrievalControlEnv(**{**toy, "collection": str(make(tmp_path / "odd"))})


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    def notes(name: str) -> str:
        return " ".join(read_judged(UNUSUAL[name][0](tmp_path / name)).notes)

    assert "test questions too, left out: 1" in notes("a question of training is one of test")
    assert "not used: validation" in notes("a test split beside validation")
    assert "left out: 1" in notes("nothing relevant to some, drawn")


def test_a_question_that_is_a_passage_does_not_find_itself(
    toy: dict[str, Any], tmp_path: Path
) -> None:
    """As in ArguAna; a passage that has the id of a question by chance is another one."""
    texts = {"0": "salt  comes\nfrom the sea", "1": "salt comes from the sea"}
    splits = {"train": [("0", {"3": 1})], "test": [("1", {"0": 1})]}
    folder = write_beir(tmp_path / "odd", DOCS, texts, splits)
    world = World(EnvSettings(**{**toy, "collection": str(folder)}))
    (first,), (other,) = world.questions["train"], world.questions["test"]
    assert [world.open(one).question.itself for one in (first, other)] == [0, None]
    (listed,) = world.lists_after(first, [()])
    assert "0" not in [name for name, _ in listed]
