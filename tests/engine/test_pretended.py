"""Whole runs on a device that only pretends: a tensor on the wrong side raises. See `pretend.py`.

In a process of its own, as torch registers the device for good.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
LORA = {"adapter": "lora", "lora_r": 4, "lora_dropout": 0.1}
UPDATES = {"epochs": 2, "mini_batches": 2, "micro_batch_tokens": 64}
CHECKPOINTED = {"model": {**LORA, "gradient_checkpointing": True}}
CUT = {"top_k": 9, "top_p": 0.9, "min_p": 0.01, "allow_truncated": True}


def of(name: str, package: str = "", **more: Any) -> dict[str, Any]:
    """Settings with an algorithm, of a package if one is named."""
    made = {"algorithm": {"name": name, **more}}
    return {**made, "plugins": [f"searchrl_{package}"]} if package else made


CASES: dict[str, dict[str, Any]] = {
    "lora, dropout, checkpointing": CHECKPOINTED,
    "full weights, KL": {},
    "bfloat16, deterministic": {"model": {"dtype": "bfloat16"}, "engine": {"deterministic": True}},
    "hf": {"engine": {"generator": "hf"}},
    "updates": {"optim": UPDATES},
    "cut": {"sampling": CUT, "eval": {"every": 1, "forced": True, "temperature": 0.7}},
    "a copy, ahead": of("tis", beta=0.0) | {"scale": {"backend": "copy", "max_staleness": 1}},
    **{name: of(name) for name in ("grpo_turns", "dr_grpo", "rloo", "reinforce_pp", "dapo")},
    **{name: of(name) for name in ("gspo", "cispo", "tis", "masked_tis", "llds")},
    "ppo": of("ppo", "ppo", lam=0.9, beta=0.0),
    "ppo of tokens": of("ppo", "ppo", shared=True, values="token", kl_coef=0.1, beta=0.0),
    "exgrpo": of("exgrpo", "offpolicy", threshold=0.0),
    **{name: of(name, "credit") for name in ("tree_grpo", "igpo", "gigpo", "gdpo")},
    **{name: of(name, "credit", chains=2) for name in ("arpo", "at2po")},
}
OTHERS: dict[str, dict[str, Any]] = {
    "padded": {**of("tis"), "optim": UPDATES},
    "doctor": CHECKPOINTED,
    "sft": CHECKPOINTED,
    "resumed": {"model": {**LORA, "dtype": "float16"}},
    "used": {"model": LORA, "optim": {"optimizer": "adamw8bit"}},
    "out_of_memory": {},
}
"""Functions of `pretended_play`, with settings."""
QUICK = "updates"

Play = Callable[[str, dict[str, Any], Path], dict[str, Any]]


@pytest.fixture(scope="module")
def play(micro_model: Path) -> Iterator[Play]:
    """Play a case in the process that pretends; the reads by line, or the error."""
    folders = [TESTS, TESTS / "engine", TESTS.parent, *TESTS.parent.glob("plugins/searchrl-*")]
    around = os.environ | {"PYTHONPATH": ":".join(map(str, folders))}
    words = [sys.executable, str(TESTS / "engine" / "pretended_play.py")]
    with Popen(words, env=around, stdin=PIPE, stdout=PIPE, text=True) as process:

        def ask(kind: str, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
            case = json.dumps([kind, settings, str(micro_model), str(folder)])
            print(case, file=process.stdin, flush=True)
            assert process.stdout is not None
            answer: dict[str, Any] = json.loads(
                process.stdout.readline() or '{"error": "it ended"}'
            )
            return answer

        yield ask


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == QUICK else pytest.mark.thorough)
        for name in (*CASES, *OTHERS)
    ],
)
def test_no_tensor_of_a_run_is_on_the_wrong_device(play: Play, tmp_path: Path, name: str) -> None:
    kind = name if name in OTHERS else "train"
    answer = play(kind, {**CASES, **OTHERS}[name], tmp_path / "run")
    assert "error" not in answer, answer["error"]
    assert any("/sampling/" in place for place in answer)


def test_the_pretended_device_refuses_what_a_card_refuses(play: Play, tmp_path: Path) -> None:
    assert play("mixed", {}, tmp_path) == {}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["grpo", "gspo", "llds"])
def test_the_host_reads_once_per_token_micro_batch_and_update(
    play: Play, tmp_path: Path, name: str
) -> None:
    settings = of(name)
    if name == "grpo":  # others read log-probs before the first of several updates
        settings |= CASES["updates"]
    found = play("counted", settings, tmp_path)
    assert "error" not in found, found["error"]
    decode, step = found["decode"], found["train_step"]
    loss, take = found["_loss"], found["take_step"]
    assert set(decode) == set(loss) == set(take) == {1} and len(decode) > 20
    assert sum(step) == len(loss) + len(take)
    # Besides, slots are exchanged now and then.
    assert {*found["sent"]} <= {1, 3} and found["sent"].count(1) > 0.8 * len(decode)
