"""The audit: each fault is found in a question that has it, and in none that only looks like it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, succeed

from searchrl.core.episode import Passage
from searchrl.data.audit import find_ambiguous, find_told, find_twins, find_unreachable
from searchrl.data.questions import Question

TEXTS = [Passage("p1", "Ida Veen keeps the lighthouse.", "Skarn"), Passage("p2", "Built in 1874.")]


def ask(text: str, *answers: str, gold: tuple[str, ...] = ()) -> Question:
    return Question(text, text, answers, gold, path="q.jsonl", line=1)


@pytest.mark.parametrize(
    ("question", "is_told"),
    [
        (ask("Is Orm or the Petrel older?", "the Petrel"), False),
        (ask("Which is older, Orm or Skarn?", "Orm"), False),
        (ask("Which is older, Orm or Skarn (Orm)?", "Orm"), True),
        (ask("Who is the mayor of Ormsund?", "Orm"), False),
        (ask("Which town has the harbour of SKARN?", "no", "Skarn."), True),
        (ask("A claim without an answer"), False),
    ],
)
def test_an_answer_is_told_unless_it_is_offered(question: Question, is_told: bool) -> None:
    assert bool(find_told([question])) == is_told


def test_what_is_nowhere_cannot_be_reached() -> None:
    questions = [
        ask("a", "x", gold=("p1", "p9")),
        ask("b", "x", gold=("p1",)),
        ask("c", "ida veen"),
        ask("d", "Veen Ida", "in 1874"),
        ask("e", "Ida Ve"),
        ask("f"),
        ask("g", "Yes"),
    ]
    found = find_unreachable(questions, {"p1"}, TEXTS)
    assert found.keys() == {0, 4} and "p9" in found[0]


@pytest.mark.parametrize(
    ("text", "is_twin"),
    [
        ("who painted the boats of Skarn harbour before the war", True),
        ("Painted the boats of Skarn harbour, before the war?", True),
        ("Who painted the boats of Ormsund harbour before the war?", False),
        ("Who painted the walls of Skarn castle?", False),
    ],
)
def test_a_copy_is_found_and_the_same_template_is_not(text: str, is_twin: bool) -> None:
    others = [f"Who {verb} the {thing} of {town} harbour before the war?"
              for verb in ("painted", "sold") for thing in ("roofs", "masts")
              for town in ("Veen", "Lund", "Aker")]  # fmt: skip
    questions = [ask("Who painted the boats of Skarn harbour before the war?"), ask(text)]
    questions += map(ask, others)
    splits = ["train", "test", *["train"] * len(others)]
    found = find_twins(questions, splits)
    assert (1 in found) == is_twin and not found.keys() - {1}
    assert not find_twins(questions, ["train"] * len(questions)), "within a split it is no leak"


def test_equal_questions_with_no_answer_in_common_are_ambiguous() -> None:
    questions = [ask("Who is mayor?", "Orm"), ask("who is Mayor", "Veen"), ask("Who?", "Orm")]
    questions += [ask("When?", "1874", "in 1874"), ask("when", "In 1874!")]
    assert find_ambiguous(questions).keys() == {0, 1}


KNOWING = """
from searchrl import hookimpl
from searchrl.contracts import ANSWER, Action
from searchrl.envs.corpus import CorpusEnv

class Knowing(CorpusEnv):
    name = "knowing"

class Expert:
    def __init__(self, env, task, protocol):
        answer = task.answers[0] if task.kind == "year" else "no idea"
        self.turn = protocol.render_turn(Action(ANSWER, answer))

    def act(self, observation):
        return self.turn

@hookimpl
def register_envs(register):
    register("knowing", Knowing, expert=Expert)
"""


def test_the_command_says_what_is_wrong_and_keeps_what_passed(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "question": "Who keeps the lighthouse?", "answer": "Ida Veen"},
        {
            "id": "b",
            "question": "Where is the lost ferry?",
            "answer": "x",
            "supporting_ids": ["p9"],
        },
        {"id": "c", "question": "When was it built?", "answer": "1874", "supporting_ids": ["p2"]},
    ]
    tests = [{**rows[0], "id": "t"}, {**rows[2], "id": "u", "question": "Made when?"}]
    tests[1]["type"] = "year"
    corpus = [{"id": one.id, "title": one.title, "text": one.text} for one in TEXTS]
    flags: list[object] = ["--plugin", tmp_path / "knowing.py", "--env", "knowing", "--json"]
    (tmp_path / "knowing.py").write_text(KNOWING)
    for name, lines in (("questions", rows), ("test_questions", tests), ("corpus", corpus)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        flags += ["--set", f"env.{name}={tmp_path / name}.jsonl"]
    out = tmp_path / "new" / "kept.jsonl"
    found = json.loads(succeed("audit", *flags, "--out", out).stdout)
    faults = {one["question"]["id"]: one["reasons"] for one in found["questions"]}
    assert [name for name, reasons in faults.items() if reasons] == ["b", "t"]
    assert "p9" in faults["b"][0] and "the same in split 'train'" in faults["t"][0]
    figures = {name: (one["value"], one["n"]) for name, one in found["figures"].items()}
    assert figures["reachable"] == (0.8, 5) and figures["leaking"] == (0.2, 5)
    assert figures["findable_by_question"] == (0.6, 5) and figures["findable"] == (0.8, 5)
    ranks = {one["question"]["id"]: one["ranks"] for one in found["questions"]}
    assert ranks["b"] == {"question": None, "answer": None}
    assert ranks["u"] == {"question": None, "answer": 1}
    env = {"name": "knowing", "corpus": str(tmp_path / "corpus.jsonl"), **found["kept"]}
    config = {
        "tasks": [{"env": env}, {"env": "knowing"}],
        "plugins": [str(tmp_path / "knowing.py")],
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    words = ("--config", tmp_path / "config.yaml", "--json", "--policy", "scripted")
    again = json.loads(succeed("audit", *words).stdout)
    kept = {one["question"]["id"]: one["figures"].get("guessable") for one in again["questions"]}
    assert kept == {"a": False, "c": None, "u": True}, "the last one is for validation"
    assert again["figures"]["passed"]["value"] == pytest.approx(2 / 3)


def test_without_questions_or_corpus_there_is_nothing_to_audit(tmp_path: Path) -> None:
    assert "env.questions=FILE" in complaint("audit", "--env", "regulations")
    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "answer": "Orm"}')
    words = ("audit", "--env", "corpus", "--set", f"env.questions={tmp_path / 'q.jsonl'}")
    assert "env.corpus=FILE" in complaint(*words)
