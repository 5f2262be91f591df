"""Data sets in the layouts of their authors: what is read, and which passages are gold.

The rows are made up; keys and nesting are those of the published files.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from searchrl.core.episode import Passage
from searchrl.data import Problems, read_judgements
from searchrl.data.dataset import Dataset, load_dataset
from searchrl.errors import DataError
from searchrl.protocols import ThinkSearchAnswer

PROTOCOL = ThinkSearchAnswer()

# HotpotQA: context and supporting_facts are lists of pairs; sentences begin with their space.
HOTPOT = [
    {
        "_id": "5a1",
        "question": "Where was the builder of Skarn Light born?",
        "answer": "Lindry",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [["Skarn Light", 0], ["Ida Veen", 1], ["Ida Veen", 0]],
        "context": [
            ["Skarn Light", ["Skarn Light is a lighthouse.", " Ida Veen built it."]],
            ["Ida Veen", ["Ida Veen was an engineer.", " She was born in Lindry."]],
            ["Petrel", ["The Petrel is a ferry."]],
        ],
    },
    {
        "_id": "5a2",
        "question": "Are the Petrel and the Tern both ferries?",
        "answer": "yes",
        "type": "comparison",
        "level": "medium",
        "supporting_facts": [["Petrel", 0], ["Tern", 0]],
        "context": [
            ["Petrel", ["The Petrel is a ferry."]],
            ["Tern", ["The Tern is a ferry."]],
        ],
    },
]
AS_COLUMNS = {
    "supporting_facts": {"title": ["Skarn Light", "Ida Veen"], "sent_id": [0, 1]},
    "context": {
        "title": ["Skarn Light", "Ida Veen", "Petrel"],
        "sentences": [["Skarn Light.", " Ida Veen built it."], ["She was born."], ["A ferry."]],
    },
}
GOLD = ("Skarn Light", "Ida Veen")

MUSIQUE = {
    "id": "2hop__1_2",
    "paragraphs": [
        {"idx": 0, "title": "Skarn", "paragraph_text": "An island.", "is_supporting": False},
        {"idx": 1, "title": "Skarn", "paragraph_text": "Skarn lies in Ost.", "is_supporting": True},
        {"idx": 2, "title": "Ost", "paragraph_text": "Ost is a county.", "is_supporting": True},
    ],
    "question": "In which county lies Skarn?",
    "question_decomposition": [
        {"id": 1, "question": "Skarn >> county", "answer": "Ost", "paragraph_support_idx": 1},
        {"id": 2, "question": "#1 >> kind", "answer": "county", "paragraph_support_idx": 2},
    ],
    "answer": "Ost",
    "answer_aliases": ["County of Ost", "Ost"],
    "answerable": True,
}  # fmt: skip


def put(path: Path, rows: list[Any]) -> Path:
    """Write rows as JSONL, or as one JSON array if the file is called so."""
    as_array = path.suffix == ".json"
    text = json.dumps(rows) if as_array else "".join(f"{json.dumps(row)}\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def load(questions: Path, corpus: Path | None = None, test_frac: float = 0.0) -> Dataset:
    return load_dataset(questions, corpus, test_frac=test_frac)


def test_original_hotpotqa_brings_its_corpus_and_its_gold_passages(tmp_path: Path) -> None:
    data = load(put(tmp_path / "hotpot_dev_distractor_v1.json", HOTPOT))
    first, second = data.questions["train"]
    assert (first.gold_ids, second.gold_ids) == (GOLD, ("Petrel", "Tern"))
    assert (first.answers, first.kind, first.difficulty) == (("Lindry",), "bridge", "hard")
    assert [p.id for p in data.passages] == ["Skarn Light", "Ida Veen", "Petrel", "Tern"]
    assert data.passages[1].text == "Ida Veen was an engineer. She was born in Lindry."
    assert data.gold["Tern"].text == "The Tern is a ferry." and not data.notes


def test_2wikimultihopqa_joins_sentences_with_a_space_and_reads_json_texts(tmp_path: Path) -> None:
    row = HOTPOT[0] | {
        "context": json.dumps([["Skarn Light", ["One.", "Two."]], ["Ida Veen", ["Three."]]]),
        "supporting_facts": json.dumps([["Skarn Light", 0], ["Ida Veen", 0]]),
        "evidences": [["Skarn Light", "builder", "Ida Veen"]],
    }
    data = load(put(tmp_path / "dev.json", [row]))
    assert data.passages[0].text == "One. Two." and data.questions["train"][0].gold_ids == GOLD


@pytest.mark.parametrize("flagged", [True, False], ids=["is_supporting", "decomposition"])
def test_musique_has_aliases_and_paragraphs_under_one_title(tmp_path: Path, flagged: bool) -> None:
    row = json.loads(json.dumps(MUSIQUE))
    if not flagged:
        for paragraph in row["paragraphs"]:
            del paragraph["is_supporting"]
    data = load(put(tmp_path / "musique_ans_v1.0_dev.jsonl", [row]))
    (question,) = data.questions["train"]
    assert question.answers == ("Ost", "County of Ost")
    assert question.gold_ids == ("Skarn#2", "Ost")
    assert data.gold["Skarn#2"].text == "Skarn lies in Ost."


@pytest.mark.parametrize(
    ("titles", "gold", "note"),
    [
        (["Skarn Light", "ida  veen", "Petrel"], ("0", "1"), ""),
        (["Skarn Light", "Petrel"], ("0", "not in the corpus: Ida Veen"), "the corpus lacks"),
        (["Skarn Light", "Ida Veen", "Ida Veen"], (), "by a title that one passage"),
        (["Nothing", "Else"], (), "by a title that one passage"),
    ],
)
def test_gold_titles_are_looked_up_in_a_corpus_of_ones_own(
    tmp_path: Path, titles: list[str], gold: tuple[str, ...], note: str
) -> None:
    rows = [{"id": i, "title": title, "text": f"Text {i}."} for i, title in enumerate(titles)]
    corpus = put(tmp_path / "c.jsonl", rows)
    data = load(put(tmp_path / "q.json", HOTPOT[:1]), corpus)
    assert data.questions["train"][0].gold_ids == gold
    assert note in " ".join(data.notes) and bool(data.notes) == bool(note)


def test_flashrag_and_dpr_corpora(tmp_path: Path) -> None:
    flashrag = put(tmp_path / "wiki.jsonl", [{"id": "0", "contents": "Skarn\nAn island."}])
    dpr = tmp_path / "psgs_w100.tsv"
    dpr.write_text('id\ttext\ttitle\n0\t"An ""old"" island."\tSkarn\n1\tA ferry.\tPetrel\n')
    questions = tmp_path / "nq-test.qa.csv"
    questions.write_text("what is skarn, now\t['An island', \"the 'isle'\"]\nwho\t['x']\n")
    assert load(questions, flashrag).passages == (Passage("0", "An island.", "Skarn"),)
    data = load(questions, dpr)
    assert data.passages[0] == Passage("0", 'An "old" island.', "Skarn")
    assert data.questions["train"][0].question == "what is skarn, now"
    assert data.questions["train"][0].answers == ("An island", "the 'isle'")


def make_beir(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    put(folder / "corpus.jsonl", [{"_id": f"d{i}", "title": "", "text": f"t{i}"} for i in range(4)])
    queries = [{"_id": f"q{i}", "text": f"claim {i}", "metadata": {}} for i in range(4)]
    (folder / "queries.jsonl.gz").write_bytes(
        gzip.compress("".join(f"{json.dumps(row)}\n" for row in queries).encode())
    )
    head = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "train.tsv").write_text(f"{head}q0\td0\t1\nq0\td1\t0\nq1\td1\t2\n")
    (folder / "qrels" / "test.tsv").write_text(f"{head}q2\td2\t1\nq2\td3\t1\n")
    return folder


def test_beir_folders_with_queries_and_judgements(tmp_path: Path) -> None:
    data = load(make_beir(tmp_path / "scifact"), test_frac=0.5)
    train, test = data.questions["train"], data.questions["test"]
    assert [(q.id, q.gold_ids) for q in train] == [("q0", ("d0",)), ("q1", ("d1",))]
    assert [(q.id, q.question, q.gold_ids) for q in test] == [("q2", "claim 2", ("d2", "d3"))]
    assert not test[0].answers and len(data.passages) == 4


def test_judgements_in_the_layout_of_trec_and_bad_ones(tmp_path: Path) -> None:
    path = tmp_path / "qrels.txt"
    path.write_text("q0 0 d0 1\nq0 0 d1 0\nq1 d2\n")
    problems = Problems()
    assert read_judgements(path, problems) == {"q0": {"d0": 1, "d1": 0}}
    assert problems.found[0].number == 3 and "expected query-id, corpus-id" in str(
        problems.found[0]
    )


@pytest.mark.parametrize("head", ["query-id\tcorpus-id\tscore\n", ""], ids=["beir", "plain"])
def test_scores_of_judgements_are_whole_numbers_however_written(tmp_path: Path, head: str) -> None:
    """A score between two grades would be rounded without a word, 0.5 to not relevant."""
    path = tmp_path / "test.tsv"
    path.write_text(f"{head}q0\td0\t2\nq0\td1\t1.0\nq0\td2\t-1\nq1\td0\t3e0\n")
    problems = Problems()
    assert read_judgements(path, problems) == {"q0": {"d0": 2, "d1": 1, "d2": -1}, "q1": {"d0": 3}}
    problems.ensure_none()
    path.write_text(f"{head}q0\td0\t0.5\nq0\td1\tnan\nq0\td2\tinf\nq0\td3\thigh\n")
    assert read_judgements(path, problems) == {}
    assert len(problems.found) == 4 and "score, got" in str(problems.found[0])


def test_folders_of_save_to_disk_with_their_splits(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    row = {"question": "Where?", "golden_answers": ["Lindry"], **AS_COLUMNS}
    saved = {
        split: datasets.Dataset.from_list(
            [row | {"id": f"{split}{i}", "question": f"{split} {i}?"} for i in range(3)]
        )
        for split in ("train", "validation")
    }
    datasets.DatasetDict(saved).save_to_disk(tmp_path / "hotpot")
    data = load(tmp_path / "hotpot", test_frac=0.5)
    assert [q.id for q in data.questions["train"]] == ["train0", "train1", "train2"]
    # The data set keeps its test answers secret, so its validation questions are those of the test.
    assert [q.id for q in data.questions["test"]] == [f"validation{i}" for i in range(3)]
    assert data.questions["test"][0].gold_ids == GOLD

    rows = [{"id": str(i), "contents": f"T{i}\nx"} for i in range(5)]
    datasets.Dataset.from_list(rows).select([4, 0]).save_to_disk(tmp_path / "wiki")
    whole = load(tmp_path / "hotpot" / "train", tmp_path / "wiki")
    assert [p.title for p in whole.passages] == ["T4", "T0"]


def test_a_hub_id_is_read_by_datasets_and_a_folder_of_that_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    row = {"question": "Where?", "answer": "Lindry", **AS_COLUMNS}
    for split in ("train", "test"):
        put(Path("org/hops") / f"{split}.jsonl", [row | {"id": split, "question": split}])
    for name in ("org/hops:default", "org/hops"):
        data = load(Path(name))
        assert [q.id for q in data.questions["train"]] == ["train"], name
        assert [q.gold_ids for q in data.questions["test"]] == [GOLD]
    with pytest.raises(DataError, match=r"other/hops:x: no file or folder here, and not loaded"):
        load(Path("other/hops:x"))
    with pytest.raises(DataError, match=r"org/typo: no such file"):
        load(Path("org/typo"))
