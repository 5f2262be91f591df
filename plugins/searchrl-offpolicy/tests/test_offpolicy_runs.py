"""The shapes of traces, and a run that learns from a file of them: what fits, what is recorded."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from searchrl_offpolicy.traces import Trace, read_traces, written_by

from searchrl import DataError, Run, train
from searchrl.cli import main
from searchrl.protocols import ThinkSearchAnswer

TINY: dict[str, Any] = {
    "env": "regulations", "reward": "em", "plugins": ["searchrl_offpolicy"], "max_steps": 1,
    "model": {"name": "tiny", "adapter": "full", "dtype": "float32", "max_context": 1024,
              "instructions": False},
    "rollout": {"group_size": 4, "prompts_per_step": 2, "max_turn_tokens": 300,
                "max_observation_tokens": 256, "max_total_tokens": 1024},
    "eval": {"num_tasks": 2, "every": 0, "forced": False}, "num_threads": 1,
}  # fmt: skip


def read(folder: Path, *rows: dict[str, Any]) -> list[Trace]:
    file = folder / "traces.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return list(read_traces(str(file)))


SHAPES = [
    ({"prompt": "Q?", "turns": [{"text": "a", "observation": "o"}, {"text": "b"}]},
     ("Q?", ("a", "b"))),
    ({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "Q?"}],
      "target": [{"role": "assistant", "content": "<think>\nt\n</think>\n4"}],
      "reward_model": {"ground_truth": "4"}, "data_source": "openr1"},
     ("Q?", ("<think>\nt\n</think>\n4",))),
    ({"messages": [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "a"},
                   {"role": "tool", "content": "o"}, {"role": "assistant", "content": "b"}]},
     ("Q?", ("a", "b"))),
    ({"conversations": [{"from": "human", "value": "Q?"}, {"from": "gpt", "value": "a"}]},
     ("Q?", ("a",))),
    ({"problem": "Q?", "reasoning_content": "t", "content": "4"},
     ("Q?", ("<think>\nt\n</think>\n4",))),
    ({"question": "Q?", "deepseek_thinking_trajectory": "t", "deepseek_attempt": "4",
      "solution": "x"}, ("Q?", ("<think>\nt\n</think>\n4",))),
    ({"prompt": "Q?", "response": "t</think>4"}, ("Q?", ("t</think>4",))),
]  # fmt: skip


@pytest.mark.parametrize(("row", "expected"), SHAPES, ids=lambda case: str(case)[:30])
def test_a_shape(tmp_path: Path, row: dict[str, Any], expected: tuple[str, Any]) -> None:
    (trace,) = read(tmp_path, row)
    assert (trace.question, trace.turns) == expected


def test_json_files_and_several_responses(tmp_path: Path) -> None:
    file = tmp_path / "traces.json"
    file.write_text(json.dumps([{"id": "7", "prompt": "Q?", "response": ["a", "b"]}]))
    assert [(one.task_id, one.turns) for one in read_traces(str(file))] == [
        ("7", ("a",)),
        ("7", ("b",)),
    ]


@pytest.mark.parametrize(
    "row",
    [{"question": "Q?"}, {"target": 3, "prompt": "Q?"}, {"prompt": "Q?", "turns": [3]},
     {"messages": [{"role": "user", "content": "Q?"}]}, {"prompt": ["x"], "response": "a"},
     {"conversations": "x"}, {"prompt": "Q?", "response": [3]}],
    ids=str,
)  # fmt: skip
def test_a_row_of_no_shape_is_named(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"traces\.jsonl:1: "):
        read(tmp_path, row)


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        ("<think>\nLong.\n</think>\nSo \\boxed{4}.", "<think>Long.</think>\n<answer> 4 </answer>"),
        ("Long.</think>Four", "<think>Long.</think>\n<answer> Four </answer>"),
        ("<think>a</think><answer>4</answer>", "<think>a</think><answer>4</answer>"),
        ("<think>never closed", "<think>never closed"),
    ],
)
def test_reasoning_and_answer_become_a_turn_of_the_protocol(text: str, turn: str) -> None:
    trace = written_by(Trace("Q?", (text,)), ThinkSearchAnswer())
    assert trace.turns[0].replace("\n", "") == turn.replace("\n", "")


@pytest.fixture(scope="module")
def expert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the scripted expert on three training tasks."""
    folder = tmp_path_factory.mktemp("expert") / "run"
    words = ["eval", "--env", "regulations", "--reward", "em", "--policy", "scripted:expert"]
    words += ["--split", "train", "--num-tasks", "3", "--no-forced", "--run-dir", str(folder)]
    assert CliRunner().invoke(main, words).exit_code == 0
    return folder


def told_of(run_dir: Path, settings: dict[str, Any]) -> tuple[Run, list[str]]:
    """A run, and what it told the user."""
    from searchrl.screen.observer import Observer

    notes: list[str] = []

    class Listener(Observer):
        def note(self, text: str) -> None:
            notes.append(text)

    run = train({**TINY, **settings, "run_dir": str(run_dir)}, observer=Listener())
    return run, [text for text in notes if text.startswith("traces:")]


def test_traces_that_fit_are_trained_and_the_others_counted(tmp_path: Path, expert: Path) -> None:
    rows = []
    for row in Run(expert).rollouts():
        turns = [{key: turn[key] for key in ("text", "observation")} for turn in row["turns"]]
        rows.append({"id": row["task"]["id"], "prompt": row["task"]["question"], "turns": turns})
    whole, other, third = rows
    wrong = [*whole["turns"][:-1], {"text": "<think>x</think><answer>nonsense</answer>"}]
    faulty = [
        {**whole, "turns": [{"text": "<|im_start|>assistant"}]},
        {**whole, "turns": [{"text": "just words"}]},
        {**whole, "turns": whole["turns"][:-1]},
        {**whole, "turns": wrong},
        {**whole, "turns": [{"text": "<think>" + "long " * 2000 + "</think>"}]},
        {**whole, "turns": [{"text": whole["turns"][0]["text"].replace("<think>", "<think>Well. "),
                             "observation": "else"}, *whole["turns"][1:]]},
        {**whole, "turns": [{"text": "".join(t["text"] + t["observation"] for t in
                                             whole["turns"])}]},
        whole,
    ]  # fmt: skip
    file = tmp_path / "traces.jsonl"
    file.write_text("\n".join(map(json.dumps, [whole, other, third, *faulty])))
    luffy = {"name": "luffy", "settings": {"traces": str(file), "share": 1.0}}
    run, (told,) = told_of(tmp_path / "run", {"algorithm": luffy})
    assert told.startswith("traces: 3 of 11 fit, for 3 training tasks; left out ")
    for reason in (
        "chat template", "not as the protocol writes it",
        "does not end the episode", "no success", "longer than the limits",
        "answers something else", "what the environment writes", "there twice",
    ):  # fmt: skip
        assert reason in told, told
    trained = [row for row in run.rollouts("train") if row["origin"] == "demonstration"]
    assert len(trained) == 2 and {row["reward"] for row in trained} == {1.0}
    for row in trained:
        weights = zip(row["authors"], row["weight"], row["ratio"], strict=True)
        shape = [ratio and 0.1 * ratio / (ratio + 0.1) ** 2 for _, _, ratio in weights]
        own = [(w, s) for w, s, who in zip(row["weight"], shape, row["authors"], strict=True)
               if who == "M"]  # fmt: skip
        assert all(w == pytest.approx(s / 8 / len(own), rel=1e-4) for w, s in own)
        assert set(row["sampler_logp"]) == {None}
        others = zip(row["authors"], row["weight"], strict=True)
        assert all(weight is None for who, weight in others if who != "M")
    metrics = next(row for row in run.metrics if row["phase"] == "train")
    assert metrics["off_rollouts"] == 2 and 0 < metrics["off_frac"] < 1
    assert metrics["max_abs_log_ratio"] < 1e-3


def weights_of(run: Run) -> str:
    return hashlib.sha256((run.path / "policy" / "model.safetensors").read_bytes()).hexdigest()


def test_without_weight_the_policy_is_that_of_grpo(tmp_path: Path, expert: Path) -> None:
    settings = {"off": 0.0, "threshold": 0.0, "traces": str(expert)}
    algorithms = {"name": "grpo"}, {"name": "hybrid", "settings": settings}
    grpo, hybrid = (
        train({**TINY, "algorithm": one, "run_dir": str(tmp_path / str(one["name"]))})
        for one in algorithms
    )
    assert weights_of(grpo) == weights_of(hybrid)


KILLED = """
import json, os, signal, sys
from searchrl import train
from searchrl.programs.setup.session import Session
real = Session.update
def update(self, drawn, step, *more):
    if step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, drawn, step, *more)
Session.update = update
train(json.loads(sys.argv[1]))
"""


def test_after_a_kill_it_goes_on_to_the_same_bytes(tmp_path: Path, expert: Path) -> None:
    algorithm = {"name": "hybrid", "settings": {"traces": str(expert), "threshold": 0.0}}
    given = {**TINY, "algorithm": algorithm, "max_steps": 4, "checkpoint": {"every": 2}}
    whole = train({**given, "run_dir": str(tmp_path / "whole")})
    killed = {**given, "run_dir": str(tmp_path / "killed")}
    done = subprocess.run([sys.executable, "-c", KILLED, json.dumps(killed)], check=False)
    assert done.returncode == -9
    resumed = train(resume=tmp_path / "killed")
    assert weights_of(whole) == weights_of(resumed)
    replayed = [
        [row for row in run.rollouts("train") if row["origin"] == "replay"]
        for run in (whole, resumed)
    ]
    assert replayed[0] == replayed[1] and replayed[0]
