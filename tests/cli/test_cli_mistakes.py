"""Mistakes: each message says what is wrong, where, and what to do; never a traceback."""

import errno
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import complaint

from searchrl.engine.model import hub

BROKEN_PLUGIN = "from searchrl import hookimpl\n\n\ndef register_rewards(register:\n    pass\n"

pytestmark = pytest.mark.usefixtures("desk")

SHORT = {
    "SCRIPTED": "eval --policy scripted",
    "CORPUS": "eval --policy scripted --env corpus --set env.corpus=docs --set env.questions",
    "PLAN": "train --model tiny --dry-run",
}
MISTAKES = """
new envs capitals | 'envs' is not one of 'env'
new env json | in place of the module 'json'
check nowhere.py | there is no file
check searchrl --kind retriever --set k=3 | --set is for one name
trian | unknown command 'trian'. Did you mean 'train'
index | unknown command 'index' | pip install
play --env gym:FrozenLake-v1 --set env.max_turns=0 | max_turns = 0 | greater than or equal to 1
train --max-step 3 | No such option | '--max-step' | --max-steps
bench --steps 0 | --steps | x>=1
bench --policy scripted | trains a model
play --index ten | 'ten' is not a valid integer | '--index'
play --env corpus --index 999999 | 'corpus' has no task 999999 in split 'test' | are numbered from 0
play --env gym:FrozenLak-v1 | Gymnasium cannot make it | gym:FrozenLak-v1 | FrozenLake
play --env gym:FrozenLake-v1 --protocol think-search-answer | needs acts | Leave the protocol out
eval --policy script | unknown policy | 'script' | scripted:NAME or endpoint:URL
eval --policy scripted:exprt | 'exprt' | expert
SCRIPTED --set rollout.grup_size=2 | unknown key | 'rollout.grup_size' | 'group_size'
SCRIPTED --set retriever.title_wait=2 | 'bm25' has no setting 'title_wait' | mean 'title_weight'
SCRIPTED --set seed | expected KEY=VALUE | 'seed'
SCRIPTED --config run.yml | No such file | 'run.yml' | 'run.yaml'
SCRIPTED --plugin broken.py | SyntaxError | broken.py:4 | searchrl check
SCRIPTED --plugin borken.py | there is no file | borken.py | broken.py'
SCRIPTED --run-dir run.yaml/run | cannot write the run folder | choose another place
SCRIPTED --run-dir runs/first | exists already | 'runs/first' | --run-dir
CORPUS=question.jsonl | no such file | question.jsonl | 'questions.jsonl'
CORPUS=table.jsonl | looks like a table | table.jsonl | name it FILE.csv
SCRIPTED --env corpus --set env.corpus=doc --set env.questions=q | no such corpus | doc: | 'docs'
ask 'Where is it?' tiny | 'tiny' is an agent | searchrl ask tiny 'Where is it?'
ask tiny '' | the question is empty | When does it open?
eval runs/frist | there is no run folder | 'runs/frist' | 'runs/first'
eval runs/first/checkpoints/step_00002 | no run folder | 'runs/first/checkpoints/step_000002'
train --resume runs/frist | there is no run folder | 'runs/frist' | 'runs/first'
train --run-dir docs --model tiny | 'docs' exists already | holds nothing to resume | --run-dir
train --env regulations --allow-change | --allow-change goes with --resume RUN
train --dry-run --model ./nothing/here | does not exist | 'tiny'
train --dry-run --model scratch | only `searchrl sft` makes | --init-from
PLAN --policy scripted | other policies have no weights
PLAN --set "log.trackers=[{name: jsonl, path: []}]" | tracker 'jsonl': cannot use path
PLAN --set "algorithm.settings={window: 3}" | algorithm 'grpo' has no setting | 'window'
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A newcomer's folder: some data, a broken plugin, a run; no network."""
    monkeypatch.chdir(tmp_path)
    for name in ("docs", "runs/first/checkpoints/step_000002"):
        (tmp_path / name).mkdir(parents=True)
    rows = [{"question": f"Which ferry? {i}", "answer": "Petrel"} for i in range(40)]
    files = {
        "docs/a.txt": "The ferry is called Petrel.",
        "questions.jsonl": "\n".join(map(json.dumps, rows)),
        "table.jsonl": "question,answer\nWhich ferry?,Petrel\n",
        "run.yaml": "env: regulations\n",
        "broken.py": BROKEN_PLUGIN,
        "runs/first/checkpoints/step_000002/state.json": '{"step": 2}',
        "runs/first/config.yaml": "model: {name: tiny}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub._ask_hub.cache_clear()
    yield tmp_path
    hub._ask_hub.cache_clear()


@pytest.mark.parametrize("mistake", MISTAKES.strip().splitlines())
def test_the_message_says_what_where_and_how_to_fix_it(mistake: str) -> None:
    first, *parts = mistake.split(" | ")
    for short, words in SHORT.items():
        first = first.replace(short, words)
    text = complaint(*shlex.split(first))
    for part in parts:
        assert part in text, text
    assert len(text.splitlines()) <= 12, text
    assert "episode" not in text and "hf download" not in text, text


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


def test_existing_run_folder_is_never_written_into(micro_run: Path, micro_flags: list[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in micro_run.rglob("*")}
    text = complaint("train", *micro_flags, "--run-dir", str(micro_run))
    assert "exists already" in text and f"--resume {micro_run}" in text
    assert {path: path.stat().st_mtime_ns for path in micro_run.rglob("*")} == before


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--lr 1", "--lr;"),
        ("--lr 0 --seed 0", "--seed"),
        ("--lr 0 --max-steps 0", "--max-steps"),
        ("--lr 0 --beta 0", "--beta"),
    ],
)
def test_resume_takes_no_settings_zero_included(micro_run: Path, flags: str, named: str) -> None:
    text = complaint("train", "--resume", str(micro_run), *flags.split())
    assert "takes no --" in text and named in text and "--lr" in text and "--init-from" in text


def test_resume_takes_no_plugin_before_the_command_either(micro_run: Path) -> None:
    """The run has its own: one that is named and not loaded would be missed much later."""
    plugin = str(Path(__file__).parents[2] / "examples" / "03_my_plugin.py")
    text = complaint("--plugin", plugin, "train", "--resume", str(micro_run))
    assert "takes no --plugin;" in text
