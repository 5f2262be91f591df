"""The mistakes of a newcomer: each message says what, where and how to fix it; no traceback."""

from __future__ import annotations

import errno
import json
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import complaint

from searchrl.engine.model import hub

BROKEN_PLUGIN = "from searchrl import hookimpl\n\n\ndef register_rewards(register:\n    pass\n"

pytestmark = pytest.mark.usefixtures("desk")


@dataclass(frozen=True)
class Mistake:
    """A command line, and what its message has to say."""

    words: str
    what: str
    where: str
    fix: str


SCRIPTED = "eval --policy scripted"
CORPUS = f"{SCRIPTED} --env corpus --set env.corpus=docs --set env.questions"
MISTAKES = {
    "wrong command": Mistake("trian", "unknown command 'trian'", "trian", "'train'"),
    "wrong flag": Mistake(
        "train --max-step 3", "No such option", "'--max-step'", "--max-steps"
    ),
    "wrong kind of value": Mistake(
        "play --index ten", "'ten' is not a valid", "'--index'", "integer"
    ),
    "wrong env": Mistake(
        f"{SCRIPTED} --env regulatons", "unknown env", "'regulatons'", "'regulations'"
    ),
    "wrong game": Mistake(
        "play --env gym:FrozenLak-v1", "Gymnasium cannot make it", "gym:FrozenLak-v1", "FrozenLake"
    ),
    "wrong reward": Mistake(
        f"{SCRIPTED} --reward format+emm", "unknown reward component 'emm'", "column 8", "'em'"
    ),
    "wrong key": Mistake(
        f"{SCRIPTED} --set rollout.grup_size=2",
        "unknown key",
        "'rollout.grup_size'",
        "'group_size'",
    ),
    "wrong policy": Mistake(
        "eval --policy script", "unknown policy", "'script'", "scripted:NAME or endpoint:URL"
    ),
    "wrong split": Mistake(f"{SCRIPTED} --split tset", "no split", "'tset'", "'test'"),
    "protocol without acts": Mistake(
        "play --env gym:FrozenLake-v1 --protocol think-search-answer",
        "needs acts",
        "'think-search-answer'",
        "Leave the protocol out",
    ),
    "wrong path of data": Mistake(
        f"{CORPUS}=question.jsonl", "no such file", "question.jsonl", "'questions.jsonl'"
    ),
    "wrong path of the corpus": Mistake(
        f"{SCRIPTED} --env corpus --set env.corpus=doc --set env.questions=questions.jsonl",
        "no such corpus",
        "doc: ",
        "'docs'",
    ),
    "a table called JSONL": Mistake(
        f"{CORPUS}=table.jsonl", "looks like a table", "table.jsonl", "name it FILE.csv"
    ),
    "bad rows": Mistake(
        f"{CORPUS}=bad.jsonl", "data have faults", "bad.jsonl:1: not JSON", "the first 5"
    ),
    "wrong config": Mistake(
        f"{SCRIPTED} --config run.yml", "No such file", "'run.yml'", "'run.yaml'"
    ),
    "broken plugin": Mistake(
        f"{SCRIPTED} --plugin broken.py", "SyntaxError", "broken.py:4", "searchrl check "
    ),
    "wrong plugin": Mistake(
        f"{SCRIPTED} --plugin borken.py", "there is no file", "borken.py", "broken.py'"
    ),
    "run mistyped in ask": Mistake(
        "ask runs/frist Where?", "does not exist", "'runs/frist'", "'runs/first'"
    ),
    "run mistyped in eval": Mistake(
        "eval runs/frist", "there is no run folder", "'runs/frist'", "'runs/first'"
    ),
    "a model where a run belongs": Mistake(
        "eval tiny", "there is no run folder", "'tiny'", "runs are made by"
    ),
    "key without its section": Mistake(
        f"{SCRIPTED} --set lr=1e-4", "unknown key", "'lr'", "'optim.lr'"
    ),
    "checkpoint mistyped": Mistake(
        "eval runs/first/checkpoints/step_00002",
        "there is no run folder",
        "step_00002'",
        "'runs/first/checkpoints/step_000002'",
    ),
    "run mistyped in resume": Mistake(
        "train --resume runs/frist", "there is no run folder", "'runs/frist'", "'runs/first'"
    ),
    "run mistyped in init-from": Mistake(
        "train --init-from runs/frist", "there is no folder", "'runs/frist'", "'runs/first'"
    ),
    "folder without a model": Mistake(
        "train --model docs", "holds no policy", "docs", "config.json"
    ),
    "busy folder": Mistake(
        f"{SCRIPTED} --run-dir runs/first", "exists already", "'runs/first'", "--run-dir"
    ),
    "group of one": Mistake(
        "train --model tiny --group-size 1 --dry-run",
        "nothing can be learned",
        "rollout.group_size = 1",
        "--group-size 2 or more",
    ),
    "gold passages that nobody named": Mistake(
        "train --model tiny --env corpus --set env.corpus=docs --set env.questions=questions.jsonl"
        " --reward em+support_recall --dry-run",
        "reward 'support_recall' says nothing",
        "env 'corpus'",
        "supporting_ids",
    ),
    "task that is not there": Mistake(
        "play --env corpus --index 999999", "no task 999999", "split 'test'", "numbered from 0 to"
    ),
    "empty question": Mistake(
        "ask tiny ''", "the question is empty", "question", "When does it open?"
    ),
}  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A newcomer's folder: some data, a broken plugin, a run; no network."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("The ferry is called Petrel.")
    rows = [{"question": f"Which ferry? {i}", "answer": "Petrel"} for i in range(40)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "table.jsonl").write_text("question,answer\nWhich ferry?,Petrel\n")
    (tmp_path / "bad.jsonl").write_text("{broken\n" * 9)
    (tmp_path / "run.yaml").write_text("env: regulations\n")
    (tmp_path / "broken.py").write_text(BROKEN_PLUGIN)
    checkpoint = tmp_path / "runs" / "first" / "checkpoints" / "step_000002"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text('{"step": 2}')
    (tmp_path / "runs" / "first" / "config.yaml").write_text("model: {name: tiny}\n")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub._ask_hub.cache_clear()
    yield tmp_path
    hub._ask_hub.cache_clear()


@pytest.mark.parametrize("name", MISTAKES)
def test_the_message_says_what_where_and_how_to_fix_it(name: str) -> None:
    mistake = MISTAKES[name]
    text = complaint(*shlex.split(mistake.words))
    for part in (mistake.what, mistake.where, mistake.fix):
        assert part in text, text
    assert len(text.splitlines()) <= 12, text


def test_weights_that_cannot_be_had_are_announced_at_once() -> None:
    """A minute of retries came first."""
    started = time.monotonic()
    text = complaint("eval", "--model", "nobody/no-such-model")
    assert time.monotonic() - started < 10
    for part in ("nobody/no-such-model", "out of reach", "hf download", "--model tiny"):
        assert part in text, part


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    text = complaint("train", "--model", "tiny", "--device", "cuda", "--dry-run")
    assert "device 'cuda' is not available" in text and "--device auto" in text


def test_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("searchrl.run_folder.writer.os.fsync", full)
    words = ("eval", "--policy", "scripted", "--num-tasks", "2", "--run-dir", "runs/new")
    text = complaint(*words)
    for part in ("No space left on device", "'runs/new'", "Free space", "--run-dir"):
        assert part in text, part


def test_a_folder_nobody_may_write_to(desk: Path) -> None:
    (desk / "file").write_text("in the way")
    text = complaint("eval", "--policy", "scripted", "--run-dir", "file/run")
    for part in ("cannot write the run folder", "'file/run'", "choose another place"):
        assert part in text, part
