"""Every block of the documentation runs, in the thorough tier; `slow` runs it as printed.

Blocks that train take SEARCHRL_EXAMPLE_STEPS steps (1 by default) on a few tasks.
"""

import json
import os
import shutil
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from docs_runner import LANGUAGES, PAGES, REPO, Block, name_of, read_blocks, run_blocks
from test_docs_text import ensure_documented

from searchrl.config import RunConfig, build_config
from searchrl.testing import check_plugin

NOT_RUN: dict[str, int] = {
    "docs/how-to/after-training.md": 4,  # one of them is run by `runs/test_serving.py`
    "docs/how-to/compare-settings.md": 2,
    "docs/how-to/endpoint.md": 1,
    "docs/explanation/credit.md": 1,
    "docs/how-to/from-trl.md": 2,  # run by the package's tests and `programs/test_objects.py`
    "docs/how-to/from-verifiers.md": 2,
    "docs/how-to/other-libraries.md": 5,
    "docs/how-to/plan-then-search.md": 2,  # run by the package's tests, as the next two
    "docs/how-to/retrieval-control.md": 3,
    "docs/how-to/retrieval.md": 2,
    "docs/how-to/first-gpu-run.md": 3,  # run with the tiny model by `test_qwen3_4b.py`
    "docs/how-to/qwen3_4b.md": 5,  # as the one before
    "docs/how-to/run-and-resume.md": 1,
    "docs/how-to/scale.md": 4,  # the package's tests run such runs
    "docs/how-to/off-policy.md": 2,  # run by the package's tests, as the next one
    "docs/how-to/step-agents.md": 1,
}
"""How many blocks of a page opt out with `<!-- not run: REASON -->`."""

SMALL = {
    "max_steps": int(os.environ.get("SEARCHRL_EXAMPLE_STEPS", "1")),
    "rollout": {"prompts_per_step": 2, "group_size": 4, "max_turn_tokens": 200},
    "eval": {"num_tasks": 1, "num_tasks_during": 1, "forced": False},
}
"""Laid over every run of the thorough tier: the steps of the page in miniature."""

SMALL_STAGE = {"steps": 1, "batch_size": 2}


@pytest.fixture
def docs_folder(own_folder: Path) -> Path:
    """A current folder as that of a reader: with the examples and the recorded runs in it."""
    for name in ("examples", "docs/recorded_run", "docs/collapsed_run"):
        shutil.copytree(REPO / name, own_folder / name)
    return own_folder


def _build_small(*layers: Any) -> RunConfig:
    stages = build_config(*layers).sft.stages
    small = {"stages": [stage.model_dump() | SMALL_STAGE for stage in stages]}
    return build_config(*layers, SMALL, {"sft": small})


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan of a run gets `SMALL` as its last layer."""
    monkeypatch.setattr("searchrl.programs.setup.planning.build_config", _build_small)
    for name in ("searchrl.programs.train", "searchrl.programs.sft"):
        import_module(name)  # now, or they would keep what is patched below for ever
    # `searchrl eval RUN` plans nothing: it takes the run's own configuration.
    module = import_module("searchrl.programs.evaluate")
    evaluate_both = module.evaluate_both
    monkeypatch.setattr(
        module,
        "evaluate_both",
        lambda worlds, driver, settings, **rest: evaluate_both(
            worlds,
            driver,
            # Scripts and endpoints are quick.
            settings.model_copy(update=SMALL["eval"])
            if rest["has_logps"] and rest["script"] is None
            else settings,
            **rest,
        ),
    )


PLUGINS = [b for page in PAGES for b in read_blocks(page) if b.saved_as and "@hookimpl" in b.text]
BROKEN_ON_PURPOSE = {"tagged.py": ["W9"], "hello.py": None}
"""Examples with what does not hold; None: there is nothing to check."""


@pytest.mark.parametrize("block", PLUGINS, ids=lambda block: block.saved_as)
def test_every_plugin_of_the_pages_passes_check(block: Block, tmp_path: Path) -> None:
    file = tmp_path / block.saved_as
    file.write_text(block.text, "utf-8")
    wanted = BROKEN_ON_PURPOSE.get(block.saved_as, [])
    if wanted is not None:
        reports = check_plugin(str(file))
        assert [result.number for report in reports for result in report.failed] == wanted


@pytest.mark.usefixtures("small_runs")
@pytest.mark.thorough
@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_block_runs(path: Path, docs_folder: Path) -> None:
    run_blocks(read_blocks(path), docs_folder)
    for file in docs_folder.glob("runs/*/metrics.jsonl"):
        for line in file.read_text("utf-8").splitlines():
            ensure_documented(set(json.loads(line)["metrics"]))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["README.md", "docs/start/quickstart.md"])
def test_the_front_pages_run_as_printed(name: str, docs_folder: Path) -> None:
    assert run_blocks(read_blocks(REPO / name), docs_folder) > 0


def test_blocks_say_their_language_and_few_do_not_run() -> None:
    blocks = [(name_of(path), block) for path in PAGES for block in read_blocks(path)]
    assert not [f"{page}:{b.line}" for page, b in blocks if b.language not in LANGUAGES]
    assert Counter(page for page, block in blocks if block.not_run) == NOT_RUN
