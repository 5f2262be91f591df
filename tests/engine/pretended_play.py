"""A process that pretends: plays cases, a line of JSON each, and answers with the reads by line."""

import json
import sys
import traceback
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from command_line import succeed
from pretend import DEVICE, READS, SENT, pretending
from session_toy import TAGS
from train_toy import TOY_PLUGIN, Crash, PowerCut, assert_same_learning, layered, metrics_of
from train_toy import settings as toy_settings

from searchrl.engine.learning.learner import Learner
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.plugins import load_plugins
from searchrl.programs import sft as supervised
from searchrl.programs import train as training
from searchrl.programs.setup.planning import plan_run
from searchrl.programs.setup.session import examine_plan
from searchrl.run_folder import Run


def settings(model: Path, folder: Path, more: dict[str, Any]) -> dict[str, Any]:
    base: dict[str, Any] = {"max_steps": 2, "device": "auto", "eval": {"every": 0}}
    base["plugins"] = [str(TOY_PLUGIN), *more.pop("plugins", [])]
    return toy_settings(model, folder, **layered(base, more))


def train(model: Path, folder: Path, /, **more: Any) -> Run:
    return training.train(settings(model, folder, more), quiet=True)


def padded(model: Path, folder: Path, /, **more: Any) -> None:
    with mock.patch.object(Policy, "find_packing_fault", lambda policy: "a test"):
        train(model, folder, **more)


def doctor(model: Path, folder: Path, /, **more: Any) -> None:
    plan = plan_run(settings(model, folder, {"task": TAGS, **more}))
    assert plan.load_policy(trainable=False).device == DEVICE  # with its number
    examine_plan(plan, load_plugins([str(TOY_PLUGIN)], strict=True)).ensure_good()


def sft(model: Path, folder: Path, /, **more: Any) -> None:
    more |= {"rollout": {"max_turn_tokens": 80}, "task": {"protocol": "think-search-answer"}}
    more |= {"sft": {"stages": [{"steps": 2, "batch_size": 2, "lr": 1e-2}]}}
    supervised.sft(settings(model, folder, more), quiet=True)


def resumed(model: Path, folder: Path, /, **more: Any) -> None:
    more |= {"max_steps": 3, "checkpoint": {"every": 1}, "engine": {"deterministic": True}}
    whole = train(model, folder / "whole", **more)
    with pytest.raises(PowerCut):
        training.train(settings(model, folder / "cut", more), observer=Crash(2))
    assert_same_learning(whole, training.train(resume=folder / "cut", quiet=True))


def counted(model: Path, folder: Path, /, **more: Any) -> dict[str, Any]:
    """Reads in each call of some methods; and, in each decode, values sent."""
    found: dict[str, list[int]] = {}

    def watch(owner: type, name: str, counts: Counter[str], key: str) -> None:
        method, calls = getattr(owner, name), found.setdefault(key, [])

        def call(self: Any, *given: Any, **options: Any) -> Any:
            before = counts.total()
            made = method(self, *given, **options)
            calls.append(counts.total() - before)
            return made

        setattr(owner, name, call)

    with ExitStack() as stack:
        for owner, name, counts, key in (
            (SlotGenerator, "_decode", SENT, "sent"),
            (SlotGenerator, "_decode", READS, "decode"),
            *((Learner, name, READS, name) for name in ("train_step", "_loss", "take_step")),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            watch(owner, name, counts, key)
        train(model, folder, **more)
    return found


def used(model: Path, folder: Path, /, **more: Any) -> None:
    """What a run wrote is evaluated, exported and trained further."""
    run = train(model, folder / "run", **more)
    succeed("eval", run.path, "--num-tasks", 2, "--no-forced")
    succeed("export", run.path, folder / "whole", "--merge")
    train(model, folder / "next", init_from=str(run.path), **more)


def out_of_memory(model: Path, folder: Path, /, **more: Any) -> None:
    logps, calls = Policy.logps, list[bool]()

    def fail_once(policy: Policy, *given: Any, **options: Any) -> Any:
        calls.append(torch.is_grad_enabled())
        if calls[-1] and calls.count(True) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return logps(policy, *given, **options)

    with mock.patch.object(Policy, "logps", fail_once):
        rows = metrics_of(train(model, folder, **more))
    assert [row["oom_splits"]["value"] for row in rows if "oom_splits" in row] == [1.0]


def mixed(model: Path, folder: Path) -> None:
    far, near, number = torch.ones(3, device=DEVICE), torch.ones(3), torch.ones(())
    assert all(one.device == DEVICE for one in (far + number, far[near.long()]))
    for wrong in (
        lambda: far + near,
        lambda: near[far.long()],
        lambda: number.add_(far.sum()),
        lambda: torch.stack([far.sum(), number]),
        lambda: far.index_put_((near.long(),), near),
    ):
        with pytest.raises(RuntimeError, match="a CPU tensor .* beside one of the device"):
            wrong()


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr
    with pretending() as reads:
        for line in sys.stdin:
            kind, more, model, folder = json.loads(line)
            reads.clear()
            try:
                made = globals()[kind](Path(model), Path(folder), **more)
                answer: dict[str, Any] = made if isinstance(made, dict) else dict(reads)
            except Exception:
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer), file=answers, flush=True)
