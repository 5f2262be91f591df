"""Collections by name, who is training and who is test, and collections that are unlike ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from control_toy import PASSAGES, QUESTIONS, episode, write_beir, write_toy
from searchrl_control.collections.judged import draw_split, find_collection, read_judged
from searchrl_control.comparison.sequences import play_sequences
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.settings import SETS, EnvSettings
from searchrl_control.environment.worlds import World

from searchrl import DataError
from searchrl.contracts import Passage


def test_a_draw_depends_on_the_ids_the_seed_and_the_share_alone() -> None:
    ids = [f"q{number}" for number in range(11)]
    train, test = draw_split(ids, seed=18)
    assert (train, test) == draw_split(reversed(ids), seed=18)
    assert sorted(train + test) == sorted(ids)
    assert train == ["q9", "q7", "q0", "q3", "q2"]  # what was drawn before anything was trained
    assert draw_split(ids, seed=19)[0] != train
    assert len(draw_split(ids, train_share=0.25)[0]) == 2


@pytest.mark.parametrize(("ids", "share"), [(["a"], 0.5), (["a", "b"], 1.0)])
def test_a_split_with_an_empty_side_is_refused(ids: list[str], share: float) -> None:
    with pytest.raises(DataError, match="at least one on either side"):
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


def test_a_collection_of_beir_is_downloaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def load_dataset(*given: str, split: str = "") -> Any:
        asked.append(given)
        if given == ("BeIR/scidocs-qrels",):
            rows = [{"query-id": q, "corpus-id": "salt", "score": 1} for q in QUESTIONS]
            parts = {"train": rows[:2], "validation": rows[:1], "test": rows[2:]}
            return {split: HubTable(part) for split, part in parts.items()}
        if split == "queries":
            return HubTable({"_id": q, "text": text} for q, (text, _) in QUESTIONS.items())
        return HubTable({"_id": p.id, "title": p.title or None, "text": p.text} for p in PASSAGES)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    for _ in range(2):
        folder = find_collection("scidocs", None, hub=True, cache=tmp_path)
    assert len(asked) == 3 and (folder / "qrels" / "validation.tsv").is_file()
    found = read_judged(folder)
    assert [q.id for q in found.questions["train"]] == ["q-salt", "q-quill"]
    assert list(found.passages) == [*PASSAGES]


def test_a_download_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> object:
        raise ConnectionError("no network")

    for module, said in (
        (SimpleNamespace(load_dataset=refuse), "could not be downloaded: ConnectionError: no net"),
        (None, r"ModuleNotFoundError.*searchrl-control\[hub\]"),
    ):
        monkeypatch.setitem(sys.modules, "datasets", module)
        with pytest.raises(DataError, match=said):
            find_collection("fiqa", None, hub=True, cache=tmp_path)
        assert not list((tmp_path / "beir").iterdir())


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


UNUSUAL: Sequence[tuple[Callable[[Path], Path], tuple[int, int], str]] = [
    (of(DOCS, test=JUDGED), (2, 2), "drawn by env.split_seed"),
    (of(DOCS, dev=JUDGED), (2, 2), "drawn by env.split_seed"),
    (of(DOCS, dev=TRAIN, test=JUDGED), (2, 2), "not used: validation"),
    (of([*DOCS, Passage("x", " ")], train=TRAIN, test=TEST), (2, 2), ""),
    (of(DOCS, train=[("100", {"0": 0}), TRAIN[1]], test=[("102", {"3": -1}), TEST[1]]), (1, 1), ""),
    (of(DOCS, test=[("100", {"0": 0}), *JUDGED[1:]]), (1, 2), "left out: 1"),
    (of(DOCS[:1], train=[("100", {"0": 1})], test=[("101", {"0": 1}), ("102", {"0": 1})]), (1, 2),
     ""),
    (of(DOCS, train=[*TRAIN, TEST[1]], test=TEST), (2, 2), "test questions too, left out: 1"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "counts", "note"), UNUSUAL)
def test_it_opens_says_what_is_left_out_and_is_played(
    make: Callable[[Path], Path],
    counts: tuple[int, int],
    note: str,
    toy: dict[str, Any],
    tmp_path: Path,
) -> None:
    place = {**toy, "collection": str(make(tmp_path / "odd")), "max_steps": 3}
    for actions in SETS:
        env = RetrievalControlEnv(**place, actions=actions)
        assert note in " ".join(env.world.judged.notes)
        played = [
            play_sequences(env.world, split, [()])["Search"].keys() for split in ("train", "test")
        ]
        assert tuple(map(len, played)) == counts
        episode({**place, "actions": actions}, 0)


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
