"""Collections by name, and who is training and who is test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from control_toy import PASSAGES, QUESTIONS, write_beir
from searchrl_control.collections.judged import draw_split, read_judged, write_draw
from searchrl_control.collections.places import BEIR, find_collection, make_demo
from searchrl_control.environment.settings import EnvSettings
from searchrl_control.environment.worlds import World

from searchrl import ConfigError, DataError

IDS = [f"q{number}" for number in range(11)]


def test_a_draw_depends_on_the_ids_the_seed_and_the_share_alone() -> None:
    draw = draw_split(IDS, seed=18)
    assert draw == draw_split(reversed(IDS), seed=18)
    assert sorted(draw.train + draw.test) == sorted(IDS) and len(draw.train) == 5
    assert draw_split(IDS, seed=19).train != draw.train
    assert len(draw_split(IDS, train_share=0.25).train) == 2


def test_the_draw_is_the_one_that_was_written_down_before_training() -> None:
    assert draw_split(IDS, seed=18).train == ("q9", "q7", "q0", "q3", "q2")


@pytest.mark.parametrize(
    ("ids", "share", "said"),
    [(["a"], 0.5, "at least one on either side"), (["a", "b"], 1.0, "at least one on either side")],
)
def test_a_split_with_an_empty_side_is_refused(ids: list[str], share: float, said: str) -> None:
    with pytest.raises(DataError, match=said):
        draw_split(ids, train_share=share)


def test_a_written_split_is_never_another_one(tmp_path: Path) -> None:
    path = tmp_path / "splits" / "toy.json"
    write_draw(draw_split(IDS, 18), path)
    told = json.loads(path.read_text("utf-8"))
    assert told["seed"] == 18 and len(told["train"]) == 5
    write_draw(draw_split(IDS, 18), path)
    for other in (draw_split(IDS, 19), draw_split(IDS[:-1], 18)):
        with pytest.raises(DataError, match="another split"):
            write_draw(other, path)
    path.write_text("{}", "utf-8")
    with pytest.raises(DataError, match="no file of a split"):
        write_draw(draw_split(IDS, 18), path)


def test_a_folder_with_both_splits_keeps_them(tmp_path: Path) -> None:
    found = read_judged(write_beir(tmp_path / "toy"))
    assert found.draw is None
    assert [q.id for q in found.questions["train"]] == ["q-salt", "q-quill", "q-hive"]
    assert found.questions["test"][0].qrels == {"glass": 1, "lost": 1}
    assert len(found.passages) == len(PASSAGES) and "not in the corpus" in " ".join(found.notes)


def test_a_folder_with_one_split_is_drawn_from(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "toy", splits={"test": list(QUESTIONS)})
    found = read_judged(folder)
    assert found.draw == draw_split(QUESTIONS)
    assert tuple(q.id for q in found.questions["train"]) == found.draw.train


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
    assert found.draw == draw_split(row["id"] for row in asked)
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
    demo = find_collection("demo", cache=tmp_path)
    assert demo == find_collection("demo", cache=tmp_path)
    assert len(read_judged(demo).passages) == len(make_demo()[0])


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


def test_the_environment_writes_its_split_down(toy: dict[str, Any], tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "toy", splits={"test": list(QUESTIONS)})
    place = {**toy, "collection": str(folder), "split_file": str(tmp_path / "split.json")}
    world = World(EnvSettings(**place))
    told = json.loads((tmp_path / "split.json").read_text("utf-8"))
    assert told["train"] == [q.id for q in world.questions("train")]
    with pytest.raises(DataError, match="another split"):
        World(EnvSettings(**place, split_seed=5))
    with pytest.raises(ConfigError, match="both splits of its own"):
        World(EnvSettings(**{**place, "collection": toy["collection"]}))
