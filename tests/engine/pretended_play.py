"""A process that pretends: plays cases, a line of JSON each, and answers with the reads by line."""

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from click.testing import CliRunner
from pretend import DEVICE, pretending
from session_toy import TAGS
from train_toy import TOY_PLUGIN, Crash, PowerCut, assert_same_learning, layered, metrics_of
from train_toy import settings as toy_settings
from transformers import AutoModelForCausalLM

from searchrl.cli import main
from searchrl.engine.learning.updater import Updater
from searchrl.engine.model.policy import Policy
from searchrl.plugins import load_plugins
from searchrl.programs import sft as supervised
from searchrl.programs import train as training
from searchrl.programs.setup.planning import plan_run
from searchrl.programs.setup.session import examine_plan
from searchrl.run_folder import Run

LONG = {"max_turn_tokens": 80, "max_total_tokens": 600}
"""Room for a demonstration."""
AGENT = """
from openai import OpenAI

def act(task, base_url, api_key):
    client = OpenAI(base_url=base_url, api_key=api_key)
    asked = [{"role": "user", "content": task["question"]}]

    def ask(*more):
        options = {"model": "policy", "messages": [*asked, *more], "max_tokens": 4}
        return client.chat.completions.create(**options).choices[0].message.content

    reply = {"role": "assistant", "content": ask()}
    for word in ("one", "other"):  # both go on behind the same reply
        ask(reply, {"role": "user", "content": word})
    return ask()
"""


def run_settings(model: Path, folder: Path, more: dict[str, Any]) -> dict[str, Any]:
    short = {"max_steps": 2, "device": "auto", "eval": {"every": 0}}
    packages = more.pop("plugins", [])
    base = toy_settings(model, folder, **layered(short, more))
    return base | {"plugins": [*base["plugins"], *packages]}


def train(model: Path, folder: Path, /, **more: Any) -> Run:
    return training.train(run_settings(model, folder, more), quiet=True)


def padded(model: Path, folder: Path, /, **more: Any) -> None:
    with mock.patch.object(Policy, "find_packing_fault", lambda policy: "a test"):
        train(model, folder, **more)


def doctor(model: Path, folder: Path, /, **more: Any) -> None:
    plan = plan_run(run_settings(model, folder, {"task": TAGS, **more}))
    examine_plan(plan, load_plugins([str(TOY_PLUGIN)], strict=True)).ensure_good()


def sft(model: Path, folder: Path, /, **more: Any) -> None:
    more |= {"task": {"protocol": "think-search-answer"}, "rollout": LONG}
    more |= {"sft": {"stages": [{"steps": 2, "batch_size": 2, "lr": 1e-2}]}}
    supervised.sft(run_settings(model, folder, more), quiet=True)


def resumed(model: Path, folder: Path, /, **more: Any) -> None:
    more |= {"max_steps": 3, "checkpoint": {"every": 1}}
    whole = train(model, folder / "whole", **more)
    try:
        cut = run_settings(model, folder / "cut", more)
        training.train(cut, observer=Crash(2))
    except PowerCut:
        assert_same_learning(whole, training.train(resume=folder / "cut", quiet=True))


def used(model: Path, folder: Path, /, **more: Any) -> None:
    """What a run wrote is evaluated, trained further and exported."""
    run = train(model, folder / "run", **more)
    command("eval", run.path, "--num-tasks", 2, "--set", "eval.temperature=0.7", "--no-forced")
    command("export", run.path, folder / "whole", "--merge")
    train(model, folder / "next", init_from=str(run.path), **more)


def out_of_memory(model: Path, folder: Path, /, **more: Any) -> None:
    """The first batch that can be split has no memory behind its backward pass."""
    in_micro_batches, failed = Updater.in_micro_batches, list[Any]()

    def failing(updater: Any, groups: Any, run: Callable[[Any], Any]) -> Any:
        def once(batch: Any) -> Any:
            made = run(batch)
            if len(batch.rows) > 1 and not failed:
                failed.append(batch)
                raise torch.OutOfMemoryError("CUDA out of memory")
            return made

        return in_micro_batches(updater, groups, once)

    with mock.patch.object(Updater, "in_micro_batches", failing):
        rows = metrics_of(train(model, folder, **more))
    assert [row["oom_splits"]["value"] for row in rows if "oom_splits" in row] == [1.0]


@contextmanager
def quantized_here() -> Iterator[None]:
    """bitsandbytes packs the weights on the CPU: only plain tensors can change their type."""
    load = AutoModelForCausalLM.from_pretrained

    def load_and_move(*args: Any, device_map: Any, **more: Any) -> Any:
        model, read = load(*args, device_map={"": "cpu"}, **more)
        for module in model.modules():
            packed = getattr(module, "weight", None)
            if hasattr(packed, "quant_state"):
                packed.quant_state.to(DEVICE)
                module.weight = torch.nn.Parameter(packed.data.to(DEVICE), requires_grad=False)
                vars(module.weight).update(vars(packed))
        return model.to(DEVICE), read

    with mock.patch.object(AutoModelForCausalLM, "from_pretrained", load_and_move):
        yield


def four_bit(model: Path, folder: Path, /, **more: Any) -> None:
    with quantized_here():
        train(model, folder, **layered(more, {"model": {"quantize": "nf4"}}))


def demonstrated(model: Path, folder: Path, /, **more: Any) -> None:
    expert = folder / "expert"
    words = ("--env", "toy", "--plugin", TOY_PLUGIN, "--reward", "em", "--policy", "scripted")
    command("eval", *words, "--split", "train", "--num-tasks", 2, "--run-dir", expert)
    more["task"] = {"protocol": "think-search-answer", "reward": "em", "retriever": "bm25"}
    more["algorithm"] |= {"traces": str(expert), "share": 1.0}
    more["rollout"] = LONG
    run = train(model, folder / "run", plugins=["searchrl_offpolicy"], **more)
    assert any(row["origin"] == "demonstration" for row in run.rollouts("train"))


def agents(model: Path, folder: Path, /, **more: Any) -> None:
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT, "utf-8")
    agent = {"name": "agent", "command": f"{folder / 'agent.py'}:act"}
    more["task"] = {"wrapper": agent, "protocol": "think-search-answer"}
    run = train(model, folder / "run", plugins=["searchrl_agents"], **more)
    assert {len(row["segments"]) for row in run.rollouts("train")} == {3}


def command(*words: object) -> None:
    done = CliRunner().invoke(main, [*map(str, words)])
    assert done.exit_code == 0, done.output


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr
    with pretending() as reads:
        for line in sys.stdin:
            kind, more, model, folder = json.loads(line)
            reads.clear()
            try:
                globals()[kind](Path(model), Path(folder), **more)
                answer = dict(reads)
            except Exception:
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer), file=answers, flush=True)
