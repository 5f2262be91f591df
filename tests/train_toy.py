"""What tests of `train` and `sft` share: a run of a second on the toy world, and ways to end it."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from searchrl.run_folder import Run
from searchrl.screen.observer import Observer
from searchrl.trackers.rows import read_rows

TOY_PLUGIN = Path(__file__).resolve().parent / "fixtures" / "toy_world.py"
TIMINGS = {"sample_s", "update_s", "tokens_per_s"}


def settings(folder: Path, run_dir: Path, **more: Any) -> dict[str, Any]:
    """Six steps of a micro model on the toy world: a second or so."""
    task = {
        "env": {"name": "toy", "max_turns": 3},
        "reward": "parity",
        "metrics": ["format"],
        "protocol": {"name": "short-stops", "instruction": ""},
        "retriever": {"name": "random"},
    } | more.pop("task", {})
    base: dict[str, Any] = {
        "tasks": [task],
        "plugins": [str(TOY_PLUGIN)],
        "model": {"name": str(folder), "adapter": "full"},
        "rollout": {"group_size": 3, "prompts_per_step": 2}
        | {"max_turn_tokens": 12, "max_total_tokens": 300},
        "algorithm": {"beta": 0.01},
        "optim": {"lr": 1e-2, "warmup_steps": 1, "schedule": "cosine"},
        "eval": {"num_tasks": 2, "num_tasks_during": 2, "every": 3, "forced": False},
        "checkpoint": {"every": 2, "keep_last": 2},
        "max_steps": 6,
        "num_threads": 1,
        "device": "cpu",
        "run_dir": str(run_dir),
    }
    return layered(base, more)


def layered(base: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `more` over it; of two mappings, the keys of both."""
    for key, value in more.items():
        old = base.get(key)
        base[key] = old | value if isinstance(old, dict) and isinstance(value, dict) else value
    return base


def metrics_of(run: Run) -> list[dict[str, Any]]:
    """Every row but its timings."""
    return [
        {"step": r["step"], "phase": r["phase"]}
        | {k: v for k, v in r["metrics"].items() if k not in TIMINGS}
        for r in read_rows(run.path / "metrics.jsonl")
    ]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


def assert_same_weights(left: Path, right: Path) -> None:
    ours, theirs = weights_of(left), weights_of(right)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def assert_same_learning(left: Run, right: Run) -> None:
    assert metrics_of(left) == metrics_of(right)
    assert_same_weights(left.path / "policy", right.path / "policy")


def assert_same_run(left: Run, right: Run, at_least: int = 31) -> None:
    assert_same_learning(left, right)
    ours_rows, theirs_rows = list(left.rollouts()), list(right.rollouts())
    assert ours_rows == theirs_rows and len(ours_rows) >= at_least
    keys = ("before", "after", "best", "steps", "seed")
    assert [left.summary[k] for k in keys] == [right.summary[k] for k in keys]


class PowerCut(BaseException):
    """What no handler gets to see in life; here only `except BaseException` would."""


class Crash(Observer):
    """Keeps the notes; ends the process, raises or interrupts when it sees a step finished."""

    def __init__(self, step: int = -1, how: str = "power") -> None:
        self.at = step
        self.how = how
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, step: int, max_steps: int, metrics: Mapping[str, Any]) -> None:
        if step == self.at:
            if self.how == "power":
                raise PowerCut
            if self.how == "raise":
                raise RuntimeError("the terminal is gone")
            os.kill(os.getpid(), signal.SIGINT)
