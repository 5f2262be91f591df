"""Collections by name, and who is training and who is test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from control_toy import PASSAGES, QUESTIONS, write_beir
from searchrl_control.collections.judged import draw_split, read_judged
from searchrl_control.collections.places import BEIR, find_collection

from searchrl import ConfigError, DataError

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
    found = read_judged(write_beir(tmp_path / "toy"))
    assert not found.is_drawn
    assert [q.id for q in found.questions["train"]] == ["q-salt", "q-quill", "q-hive"]
    assert found.questions["test"][0].qrels == {"glass": 1, "lost": 1}
    assert len(found.passages) == len(PASSAGES) and "not in the corpus" in " ".join(found.notes)


def test_a_folder_with_one_split_is_drawn_from(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "toy", splits={"test": list(QUESTIONS)})
    found = read_judged(folder)
    assert found.is_drawn
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


def test_a_question_without_a_relevant_passage_is_left_out(tmp_path: Path) -> None:
    questions = {**QUESTIONS, "q-zero": ("salt", {"salt": 0})}
    ids = list(questions)
    folder = write_beir(
        tmp_path / "toy", questions=questions, splits={"train": ids[:3], "test": ids[3:]}
    )
    assert "q-zero" not in [q.id for q in read_judged(folder).questions["test"]]


def test_a_name_is_a_path_a_folder_of_data_or_the_made_up_one(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "data" / "scifact")
    assert find_collection(str(folder)) == folder
    assert find_collection("scifact", tmp_path / "data") == folder
    demo = read_judged(find_collection("demo"))
    assert len(demo.passages) == 72 and {len(of) for of in demo.questions.values()} == {36}


def test_a_missing_collection_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"env\.hub=true to download it"):
        find_collection("nfcorpus", tmp_path)
    with pytest.raises(DataError, match="Did you mean 'scifact'"):
        find_collection("scifcat")


class Rows(list[dict[str, Any]]):
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
            return {split: Rows(part) for split, part in parts.items()}
        if name == "queries":
            asked = QUESTIONS.items()
            return Rows({"_id": q, "title": "", "text": text} for q, (text, _) in asked)
        return Rows({"_id": p.id, "title": p.title or None, "text": p.text} for p in PASSAGES)


@pytest.mark.parametrize("name", BEIR)
def test_a_collection_of_beir_is_downloaded_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub()
    monkeypatch.setitem(sys.modules, "datasets", hub)
    folder = find_collection(name, hub=True, cache=tmp_path)
    assert find_collection(name, hub=True, cache=tmp_path) == folder and len(hub.asked) == 3
    found = read_judged(folder)
    assert [q.id for q in found.questions["train"]] == ["q-salt", "q-quill"]
    assert {passage.id for passage in found.passages} == {passage.id for passage in PASSAGES}
    assert (folder / "qrels" / "dev.tsv").is_file()


def test_a_download_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> object:
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=refuse))
    with pytest.raises(DataError, match="could not be downloaded: ConnectionError: no network"):
        find_collection("fiqa", hub=True, cache=tmp_path)
    assert not list((tmp_path / "beir").iterdir())
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"searchrl-control\[hub\]"):
        find_collection("fiqa", hub=True, cache=tmp_path)
