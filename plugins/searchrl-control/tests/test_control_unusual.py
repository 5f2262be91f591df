"""Collections that are unlike ours open, and a sequence is worth what an episode of it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from control_toy import act_fixed, play
from searchrl_control.collections.judged import read_judged
from searchrl_control.comparison.playing import Board, make_heuristic
from searchrl_control.comparison.sequences import list_sequences, name_of, play_sequences
from searchrl_control.environment.actions import SETS
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.settings import EnvSettings
from searchrl_control.environment.worlds import World

from searchrl import DataError

Rows = Sequence[Mapping[str, Any]]
Qrels = Sequence[tuple[str, str, int]]

DOCS: Rows = [
    {"_id": str(number), "title": "", "text": text}
    for number, text in enumerate(
        [
            "salt comes from the sea",
            "bees make honey in spring",
            "the harbour of Tolmere is old",
            "a market sells glass",
        ]
    )
]
ASKED: Rows = [
    {"_id": str(100 + number), "text": text}
    for number, text in enumerate(
        ["where does salt come from", "who makes honey", "zebra quagga", "old harbour"]
    )
]
JUDGED: Qrels = [
    ("100", "0", 2),
    ("100", "3", 1),
    ("101", "1", 1),
    ("102", "3", 1),
    ("103", "2", 1),
]
TRAIN, TEST = JUDGED[:3], JUDGED[3:]


def write(folder: Path, docs: Rows, asked: Rows, splits: Mapping[str, Qrels]) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", docs), ("queries", asked)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
    for split, judged in splits.items():
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judged)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def of(docs: Rows, asked: Rows, **splits: Qrels) -> Callable[[Path], Path]:
    return lambda folder: write(folder, docs, asked, splits)


UNUSUAL: Mapping[str, tuple[Callable[[Path], Path], tuple[int, int]]] = {
    "only a test split, graded": (of(DOCS, ASKED, test=JUDGED), (2, 2)),
    "only a validation split": (of(DOCS, ASKED, dev=JUDGED), (2, 2)),
    "a test split beside validation": (of(DOCS, ASKED, dev=TRAIN, test=JUDGED), (2, 2)),
    "passages without any text": (
        of([*DOCS, {"_id": "x", "title": "", "text": " "}], ASKED, train=TRAIN, test=TEST),
        (2, 2),
    ),
    "relevant passages that are not there": (
        of(DOCS, ASKED, train=[("100", "no", 1), *TRAIN[2:]], test=[("102", "gone", 1), TEST[1]]),
        (2, 2),
    ),
    "judged queries without a text": (
        of(DOCS, ASKED, train=[*TRAIN, ("900", "0", 1)], test=TEST),
        (2, 2),
    ),
    "nothing relevant to some": (
        of(DOCS, ASKED, train=[("100", "0", 0), *TRAIN[2:]], test=[("102", "3", -1), TEST[1]]),
        (1, 1),
    ),
    "nothing relevant to some, drawn": (
        of(DOCS, ASKED, test=[("100", "0", 0), *JUDGED[2:]]),
        (1, 2),
    ),
    "one passage": (
        of(DOCS[:1], ASKED, train=[("100", "0", 1)], test=[("101", "0", 1), ("102", "0", 1)]),
        (1, 2),
    ),
    "a training question is a test question": (
        of(DOCS, ASKED, train=[*TRAIN, ("103", "2", 1)], test=TEST),
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
                played = play(env, split, act_fixed(env, sequence))
                told = {question: worth for question, worth, _ in played}
                assert told == values[name_of(env.actions, sequence)]
                assert all(0 <= value <= 1 for value in told.values())
            board = Board(env, split)
            found.append(len(board.play(make_heuristic(board.space)).played))
        assert tuple(found) == counts


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (of(DOCS, ASKED, test=JUDGED[:1]), "cannot be split"),
        (of([{"_id": "1", "text": "…"}], ASKED, test=[("100", "1", 1), ("101", "1", 1)]),
         "no passage of it has a word"),
        (of(DOCS, ASKED, train=TEST, test=TEST), "every training question is a test question"),
        (of(DOCS, ASKED, test=[("900", "0", 1)]), "which is no query; nor is another"),
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

    assert "test questions too, left out: 1" in notes("a training question is a test question")
    assert "left out: 1" in notes("judged queries without a text")
    assert "not used: validation" in notes("a test split beside validation")
    assert "left out: 1" in notes("nothing relevant to some, drawn")


def test_a_question_that_is_a_passage_does_not_find_itself(
    toy: dict[str, Any], tmp_path: Path
) -> None:
    """As in ArguAna; a passage that has the id of a question by chance is another one."""
    asked = [
        {"_id": "0", "text": "salt  comes\nfrom the sea"},
        {"_id": "1", "text": "salt comes from the sea"},
    ]
    judged = [("0", "3", 1), ("1", "0", 1)]
    folder = write(tmp_path / "odd", DOCS, asked, {"train": judged[:1], "test": judged[1:]})
    world = World(EnvSettings(**{**toy, "collection": str(folder)}))
    itself = {
        q.id: world.asker(q).itself for split in ("train", "test") for q in world.questions(split)
    }
    assert itself == {"0": 0, "1": None}
    (first,) = world.questions("train")
    (listed,) = world.positions.lists_after(world.asker(first), [()])
    assert "0" not in [name for name, _ in listed]
