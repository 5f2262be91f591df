"""Classes, functions and rows in the settings of `train` and `evaluate`; such a run resumes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from command_line import MICRO_SETTINGS, complaint
from docs_runner import DOCS, read_blocks
from gymnasium.spaces import Discrete

from searchrl.config import parse_sets
from searchrl.config.packaged import EMBEDDED, find_packaged
from searchrl.core.episode import Episode
from searchrl.errors import ChangedError, ConfigError, DataError, FailureLimitError, SearchRLError
from searchrl.programs.evaluate import evaluate
from searchrl.programs.setup.objects import take_objects
from searchrl.programs.train import train
from searchrl.run_folder import Run
from searchrl.screen.observer import Observer

Settings = dict[str, Any]
ROWS = [{"question": f"Where is number {n}?", "answer": "here"} for n in range(9)]
PASSAGES = [{"title": "Numbers", "sentences": ["All numbers are here."]}]


class Walk(gymnasium.Env[int, int]):
    """Ends with the first legal move."""

    def __init__(self, size: int, questions: list[Settings] | None = None) -> None:
        self.action_space, self.observation_space = Discrete(2), Discrete(size)
        self.questions = questions or []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, Settings]:
        return len(self.questions), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, Settings]:
        return 0, 1.0, True, False, {}


def brevity(episode: Episode) -> float:
    return 1 / (1 + len(episode.turns))


class Told(Observer):
    """Presses Ctrl-C after step 1."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)

    def step(self, step: int, *rest: Any) -> None:
        if step == 1:
            raise KeyboardInterrupt


@pytest.fixture
def small(micro_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    given = {"model": {"name": str(micro_model)}, "max_steps": 2, "run_dir": str(tmp_path / "run")}
    return parse_sets(MICRO_SETTINGS) | {"env": {"name": Walk, "make": {"size": 12}}} | given


def test_a_run_goes_on_with_the_same_objects_and_with_no_others(small: Settings):
    half = lambda episode: 0.5  # noqa: E731
    objects = small | {"reward": ["env", brevity, "-0.1*short", half]}
    objects |= {"functions": {"short": brevity}, "questions": ROWS}
    told, run = Told(), Run(Path(small["run_dir"]))
    with pytest.raises(KeyboardInterrupt, match=re.escape(f"resume='{run.path}')")):
        train(objects, observer=told)
    assert any("Walk, short, brevity, unnamed" in text for text in told.texts)
    assert run.config.tasks[0].reward == "env+brevity-0.1*short+unnamed"
    (mine,) = (row for row in run.provenance["plugins"] if row["origin"] == "python")
    assert mine["names"] == {"env": ["Walk"], "reward": ["short", "brevity", "unnamed"]}
    way_back = r"give the same objects \(Walk, short, brevity, unnamed\): searchrl.train"
    assert re.search(way_back, complaint("train", "--resume", run.path))
    with pytest.raises(SearchRLError, match=way_back):
        train(resume=run.path, quiet=True)
    other = lambda episode: 0.25  # noqa: E731
    for changed in ({"reward": [brevity, other]}, {"questions": ROWS[1:]}):
        with pytest.raises(ChangedError, match="plugin python was"):
            train(objects | changed, resume=run.path, quiet=True)
    done = train({**objects, "reward": [half, brevity]}, resume=run.path, quiet=True)
    assert done.summary["steps"] == 2
    prompt = next(iter(done.rollouts("train")))["task"]["question"]
    assert prompt.startswith("This is Walk.") and prompt.endswith(str(len(ROWS)))


def test_a_name_of_ours_is_not_taken_by_an_object(small: Settings):
    def em(episode: Episode) -> float:
        return 0.5

    wanted = {"env": "regulations", "reward": ["em", em], "policy": "scripted"}
    assert evaluate(small | wanted, quiet=True).metrics["em_2"]["value"] == 0.5


def test_a_lambda_has_the_same_hash_in_every_process():
    script = (
        "from searchrl.programs.setup.objects import take_objects\n"
        "known = lambda episode: episode.answer in {'a', 'b', 'c', 'd', 'e'}\n"
        "print(take_objects({'reward': known})[1].owner.sha256)"
    )
    told = {
        subprocess.check_output([sys.executable, "-c", script], env={**os.environ, **seed})
        for seed in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    }
    assert len(told) == 1


@pytest.mark.parametrize("wrong", [{"functions": [brevity]}, {"questions": 5}, {"questions": {}}])
def test_objects_of_no_use_are_named_with_what_is_expected(wrong: Settings):
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"{name}.*expected"):
        take_objects(wrong)


@pytest.mark.parametrize("is_dataset", [False, True])
def test_rows_are_the_questions_of_corpus(small: Settings, is_dataset: bool):
    rows: Any = [row | {"context": PASSAGES} for row in ROWS]
    if is_dataset:
        rows = pytest.importorskip("datasets").Dataset.from_list(rows)
    wanted = {"env": None, "questions": rows, "reward": [brevity, "em"], "policy": "scripted"}
    result = evaluate(small | wanted, quiet=True)
    assert {one.episode.task.question for one in result.rollouts} < {r["question"] for r in ROWS}
    assert result.metrics["brevity"]["value"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("wrong", "kind", "told"),
    [
        ({"env": Walk}, ConfigError, r"Walk.*required.*'size'.*env\.make"),
        (
            {"reward": lambda _: "good"},
            FailureLimitError,
            r"reward 'unnamed'.*returned 'good' \(str\)",
        ),
        (
            {"questions": [*ROWS, {"question": "Why?"}, {"answer": "so"}, "how"]},
            DataError,
            r"(?s)questions:10: has no answer.*:11: has no 'question'.*:12: expected a mapping",
        ),
    ],
)
def test_wrong_objects_are_named(small: Settings, wrong: Settings, kind: type, told: str):
    with pytest.raises(kind, match=told):
        train(small | wrong, quiet=True)


@pytest.mark.thorough
def test_the_notebook_shows_its_progress_and_resumes(tmp_path: Path):
    import nbclient
    import nbformat

    book = nbformat.read(DOCS.parent / "examples" / "notebook.ipynb", 4)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=200, resources=place).execute()
    outputs = [json.dumps(output) for cell in book.cells for output in cell.get("outputs", ())]
    assert sum("widget-view" in one for one in outputs) == 2
    assert any("resumed runs/corridor" in one for one in outputs) and "(2, 'after'" in outputs[-1]


@pytest.mark.thorough
def test_the_script_of_trl_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("trl")
    monkeypatch.chdir(tmp_path)
    blocks = read_blocks(DOCS / "how-to" / "from-trl.md")
    (block,) = (one for one in blocks if "GRPOConfig(" in one.text)
    script = block.text.replace('"Qwen/Qwen3-0.6B"', repr(str(find_packaged(EMBEDDED))))
    script = script.replace('report_to="none"', 'report_to="none", bf16=False, use_cpu=True')
    made: Settings = {}
    exec(compile(script, "trl", "exec"), made)
    assert made["trainer"].state.global_step == 2
