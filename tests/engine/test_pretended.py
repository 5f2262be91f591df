"""Whole runs on a device that only pretends: a tensor on the wrong side raises. See `pretend.py`.

In a process of its own, as torch registers the device for good.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
LORA = {"adapter": "lora", "lora_r": 4, "lora_dropout": 0.1}
CASES: dict[str, Any] = {
    "full weights, KL": {},
    "lora, dropout": {"model": LORA},
    "bfloat16": {"model": {"dtype": "bfloat16"}},
    "hf": {"engine": {"generator": "hf"}},
    "updates": {"optim": {"epochs": 2, "mini_batches": 2, "micro_batch_tokens": 64}},
    **{name: {"algorithm": {"name": name}} for name in ("grpo_turns", "gspo", "tis", "llds")},
}
CODE = """
import json, sys
from pathlib import Path
from pretend import pretending
from train_toy import settings
from searchrl.programs.train import train

with pretending() as reads:
    train(settings(*map(Path, json.loads(sys.argv[1])), **json.loads(sys.argv[2])), quiet=True)
print(json.dumps(reads))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_no_tensor_of_a_run_is_on_the_wrong_device(
    micro_model: Path, tmp_path: Path, name: str
) -> None:
    short = {"max_steps": 2, "device": "auto", "eval": {"every": 0}}
    places = json.dumps([str(micro_model), str(tmp_path / "run")])
    words = [sys.executable, "-c", CODE, places, json.dumps(short | CASES[name])]
    paths = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    done = run(words, env=paths, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert any("_generator.py" in place for place in json.loads(done.stdout))


@pytest.mark.thorough
def test_a_tensor_on_the_wrong_side_raises() -> None:
    code = "import torch, pretend\nwith pretend.pretending():\n"
    code += "    torch.ones(3).to(pretend.DEVICE) + torch.ones(3)"
    words, paths = [sys.executable, "-c", code], {"PYTHONPATH": str(TESTS)}
    done = run(words, env=paths, capture_output=True, text=True, check=False)
    assert "a CPU tensor (3,) beside one of the device" in done.stderr


COUNTING = """
from pretend import READS
from searchrl.engine.learning.learner import Learner
from searchrl.engine.sampling.slot_generator import SlotGenerator

def counted(owner, name):
    method, found = getattr(owner, name), []
    def call(self, *args, **more):
        before = READS.total()
        made = method(self, *args, **more)
        found.append(READS.total() - before)
        return made
    setattr(owner, name, call)
    return found

decode = counted(SlotGenerator, "_decode")
step, loss, take = (counted(Learner, name) for name in ("train_step", "_loss", "take_step"))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["grpo", "gspo", "llds"])
def test_the_host_reads_once_per_token_micro_batch_and_update(
    micro_model: Path, tmp_path: Path, name: str
) -> None:
    settings = {"max_steps": 2, "device": "auto", "eval": {"every": 0}, "algorithm": {"name": name}}
    if name == "grpo":  # others read log-probs before the first of several updates
        settings |= CASES["updates"]
    places = json.dumps([str(micro_model), str(tmp_path / "run")])
    code = COUNTING + CODE.replace("json.dumps(reads)", "json.dumps([decode, step, loss, take])")
    words = [sys.executable, "-c", code, places, json.dumps(settings)]
    paths = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    done = run(words, env=paths, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    decode, step, loss, take = json.loads(done.stdout)
    assert set(decode) == set(loss) == set(take) == {1} and len(decode) > 20
    assert sum(step) == len(loss) + len(take)
